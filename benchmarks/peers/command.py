"""Running other programs. Owns what is said where one fails, nothing of what they print."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import click


def output_of(command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None) -> str:
    """Its stdout. Raises ClickException naming the program, with the end of what it said, where it fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise click.ClickException(f"{words[0]}: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-800:]
        raise click.ClickException(f"{words[0]} ended with {done.returncode}: {said}")
    return done.stdout


def run_logged(command: Sequence[str | Path], log: Path, *, folder: Path | None = None) -> None:
    """For long work: everything it says is added to `log`. Raises ClickException naming the log where it fails."""
    words = [str(word) for word in command]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        try:
            done = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=False, cwd=folder)
        except OSError as error:
            raise click.ClickException(f"{words[0]}: {error.strerror}") from None
    if done.returncode:
        raise click.ClickException(f"{words[0]} ended with {done.returncode}; what it said is in {log}")
