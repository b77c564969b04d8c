"""The command: where the page goes, what is printed, and errors of one line before anything is loaded."""

import json
from pathlib import Path

import pytest
from tests.cli.command_line import invoke, json_of
from tests.tiny import write_tiny_gguf

from twostroke.errors import ConfigError, HardwareNotFoundError, InvalidRequestError, ModelNotFoundError


def test_a_plan_is_drawn_and_told(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    result = invoke("explain", "llama-3.1-8b", "--plan", "--hardware", "RTX 4090", "-o", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"drawn: {path}" in result.stderr
    assert "RTX 4090" in path.read_text("utf-8")
    told = json_of("explain", "llama-3.1-8b", "--plan", "--hardware", "RTX 4090", "--prompt-tokens", "99")
    assert (told["source"], told["hardware"], told["prefill"]["tokens"]) == ("predicted", "RTX 4090", 99)


def test_a_run_of_the_default_model(smollm2_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    result = invoke(
        "explain", str(smollm2_path), "The king and the queen", "--max-tokens", "4", "--json", "-o", str(path)
    )
    assert result.exit_code == 0, result.exception
    told = json.loads(result.stdout)
    words = {word["token"]["text"]: word for word in told["vectors"]["words"]}
    near_king = [near["token"]["text"].strip().lower() for near in words[" king"]["nearest"]]
    assert "queen" in near_king and "kings" in near_king
    assert told["memory"]["weight_bytes"] > 90 << 20
    assert len(told["choices"]) == 4
    assert "king" in path.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("no-such-model", "Hi"), ModelNotFoundError),
        (("no-such-model", "--plan"), ModelNotFoundError),
        (("llama-3.1-8b", "--plan", "--hardware", "abacus 9"), HardwareNotFoundError),
        (("llama-3.1-8b", "--plan", "--hardware", "RTX 4090", "--weights", "q99"), ConfigError),
    ],
)
def test_what_is_not_known_is_named(
    arguments: tuple[str, ...], error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("explain", *arguments)
    assert isinstance(result.exception, error)
    assert len(str(result.exception).splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["missing/page.html", "."])
def test_a_file_that_cannot_be_written_is_refused_first(name: str, tmp_path: Path) -> None:
    result = invoke("explain", "no-such-model", "Hi", "-o", str(tmp_path / name))
    assert isinstance(result.exception, ConfigError)
    assert str(tmp_path) in str(result.exception)


def test_a_prompt_without_tokens(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    result = invoke("explain", str(path), "", "--raw", "-o", str(tmp_path / "page.html"))
    assert isinstance(result.exception, InvalidRequestError)
    assert "no tokens" in str(result.exception)


def test_a_prompt_or_a_plan() -> None:
    assert invoke("explain", "smollm2").exit_code == 2
    assert invoke("explain", "smollm2", "Hi", "--plan").exit_code == 2
