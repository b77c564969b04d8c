"""Texts that are not UTF-8, or that the locale cannot read, as arguments and options of every command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command_line import invoke
from tests.tiny import write_tiny_gguf

from twostroke.cli.texts import utf8_text
from twostroke.errors import InvalidRequestError

MAIN = "from twostroke.cli.main import main; main()"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("texts") / "tiny.gguf", seed=5))


@pytest.mark.parametrize(
    ("command", "arguments", "named"),
    [
        ("run", ["caf\udcff"], "PROMPT"),
        ("run", ["hi", "--system", "caf\udcff"], "--system"),
        ("run", ["hi", "--stop", "x", "--stop", "caf\udcff"], "--stop"),
        ("embed", ["tea", "caf\udcff"], "TEXTS"),
        ("explain", ["caf\udcff"], "PROMPT"),
        ("inspect", ["--prompt", "caf\udcff"], "--prompt"),
        ("inspect", ["--prompt", "hi", "--system", "caf\udcff"], "--system"),
        ("eval", ["--text", "caf\udcff"], "--text"),
    ],
)
def test_what_is_not_utf8_is_named_with_its_byte(model: str, command: str, arguments: list[str], named: str) -> None:
    error = invoke(command, model, *arguments).exception
    assert isinstance(error, InvalidRequestError)
    assert str(error) == f"{named} is not UTF-8: byte 3 is 0xff"


def test_surrogates_that_stand_for_no_byte() -> None:
    with pytest.raises(InvalidRequestError, match=r"^it is not UTF-8: byte 1 is 0xed$"):
        utf8_text("a\ud800", "it")


def test_what_the_locale_cannot_read_is_what_was_meant(model: str) -> None:
    prompts = []
    for locale in ({"PYTHONUTF8": "1"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        command = [sys.executable, "-c", MAIN, "inspect", model, "--prompt", "café 日本", "--json"]
        found = subprocess.run(command, env={**os.environ, **locale}, capture_output=True, check=True)
        prompts.append(json.loads(found.stdout)["prompt"])
    assert prompts[0] == prompts[1]
    assert "café 日本" in json.dumps(prompts[0], ensure_ascii=False)


def test_a_file_whose_name_is_not_utf8_is_a_file(model: str, tmp_path: Path) -> None:
    path = tmp_path / "m\udcff.gguf"
    path.symlink_to(model)
    result = invoke("inspect", str(path))
    assert result.exit_code == 0, result.output
