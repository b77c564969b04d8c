"""The command line's root: version, help, commands imported one by one, errors and interrupts."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from twostroke import __version__
from twostroke.cli import main as root
from twostroke.cli.main import COMMANDS, main
from twostroke.errors import ModelFileError


def test_version_and_help() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == f"twostroke {__version__}\n"
    shown = CliRunner().invoke(main, ["--help"])
    assert shown.exit_code == 0
    assert all(f"\n  {name} " in shown.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    shown = CliRunner().invoke(main, [name, "--help"])
    assert (shown.exit_code, shown.stdout.startswith("Usage: ")) == (0, True)


def test_one_command_does_not_import_another() -> None:
    code = (
        "import sys; from twostroke.cli.main import main; main.get_command(None, 'run');"
        "print(*sorted(n for n in sys.modules if n.startswith('twostroke.cli.')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    others = {f"twostroke.cli.{name}" for name in COMMANDS} - {"twostroke.cli.run"}
    assert "twostroke.cli.run" in loaded
    assert not others.intersection(loaded)


def raising(error: BaseException) -> Any:
    @click.command()
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "stderr"),
    [
        (ModelFileError("a.gguf: two\nlines"), 1, "twostroke: a.gguf: two lines\n"),
        (ModelFileError("a\x1b[31m.gguf: \x9bb é"), 1, "twostroke: a\\x1b[31m.gguf: \\x9bb é\n"),
        (KeyboardInterrupt(), 130, ""),
        (OSError(28, "No space left on device"), 1, "twostroke: standard output: No space left on device\n"),
        (FileNotFoundError(2, "No such file", "a.txt"), 1, "twostroke: a.txt: No such file\n"),
        (MemoryError(), 1, "twostroke: not enough memory: the system refused an allocation (`ulimit -v`?)\n"),
        (click.UsageError("no such thing"), 2, "twostroke: no such thing (see `twostroke run --help`)\n"),
    ],
)
def test_how_commands_fail(monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, stderr: str) -> None:
    monkeypatch.setattr(root.Commands, "get_command", lambda *_: raising(error))
    result = CliRunner().invoke(main, ["run"])
    assert (result.exit_code, result.stderr) == (code, stderr)


def test_ctrl_c_before_any_command_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, "parse_args", interrupted)
    result = CliRunner().invoke(main, ["run"])
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize("arguments", [["nothing"], ["--nothing"]])
def test_misuse_of_the_root_is_one_line(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("twostroke: No such ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    ("streams", "code", "lines"),
    [("<&-", 0, 0), (">&-", 0, 0), ("2>&-", 0, 0), ("<&- >&- 2>&-", 0, 0), (">/dev/full", 1, 1)],
)
def test_streams_that_are_closed_or_full(streams: str, code: int, lines: int) -> None:
    command = f"{sys.executable} -c 'from twostroke.cli.main import main; main()' list {streams}"
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (found.returncode, len(found.stderr.splitlines())) == (code, lines)
