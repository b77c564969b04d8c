"""How far a fetch has come, on stderr: a bar on a terminal, else a line now and then. Owns the form of both."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

from twostroke.cli.figures import bytes_text, seconds_text

if TYPE_CHECKING:
    from twostroke.weights.fetch import ProgressCallback
    from twostroke.weights.progress import PullProgress

_LINE_SECONDS = 5.0
_VERBS = {"wait": "waiting for another process that fetches it", "fetch": "fetching", "check": "checking"}


@contextmanager
def fetch_progress() -> Iterator["ProgressCallback"]:
    """What to hand to `pull` as `progress`. Shows nothing where nothing is fetched."""
    with _bar() if sys.stderr.isatty() else nullcontext(_Lines()) as show:
        yield show


def progress_text(progress: "PullProgress") -> str:
    """Sizes, rate and time left: "31.2 MiB of 93.8 MiB, 5.2 MiB/s, 12 s left"."""
    if progress.stage == "wait":
        return ""
    text = bytes_text(progress.num_bytes)
    if progress.total_bytes is not None:
        text += f" of {bytes_text(progress.total_bytes)}"
    if progress.bytes_per_second > 0:
        text += f", {bytes_text(progress.bytes_per_second)}/s"
        if progress.total_bytes is not None:
            text += f", {seconds_text((progress.total_bytes - progress.num_bytes) / progress.bytes_per_second)} left"
    return text


class _Lines:
    """A line at the start of each stage, every few seconds, and at the end."""

    def __init__(self) -> None:
        self._stage = ""
        self._shown_at = 0.0

    def __call__(self, progress: "PullProgress") -> None:
        now = time.monotonic()
        is_whole = progress.num_bytes == progress.total_bytes
        if progress.stage != self._stage or is_whole or now - self._shown_at >= _LINE_SECONDS:
            self._stage, self._shown_at = progress.stage, now
            text = f"{progress.model}: {_VERBS[progress.stage]} {progress_text(progress)}"
            click.echo(text.rstrip(), err=True)


@contextmanager
def _bar() -> Iterator["ProgressCallback"]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: list[int] = []

        def show(progress: "PullProgress") -> None:
            if not tasks:
                tasks.append(bar.add_task("", note=""))
            bar.update(
                bar.tasks[0].id,
                description=f"{progress.model}: {_VERBS[progress.stage]}",
                completed=progress.num_bytes,
                total=progress.total_bytes,
                note=progress_text(progress),
            )

        yield show
