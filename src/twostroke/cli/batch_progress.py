"""How a batch goes on, on stderr: a bar on a terminal, else a line now and then. Owns the form of both."""

import shutil
import sys
import time

import click

from twostroke.cli.figures import seconds_text
from twostroke.server.batch.run import BatchCounts

_BAR = 24
_TERMINAL_S, _LINE_S = 0.1, 5.0


class BatchProgress:
    """Call `show` after each answer and `clear` before other output."""

    def __init__(self, counts: BatchCounts) -> None:
        self._counts = counts
        self._is_terminal = sys.stderr.isatty()
        self._every = _TERMINAL_S if self._is_terminal else _LINE_S
        self._started = self._shown_at = time.monotonic()
        self._width = shutil.get_terminal_size().columns - 1

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def show(self) -> None:
        """Draws the state, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._shown_at < self._every:
            return
        self._shown_at = now
        text = progress_text(self._counts, self.seconds)
        if self._is_terminal:
            click.echo(f"\r{text[: self._width].ljust(self._width)}", nl=False, err=True)
        else:
            click.echo(text, err=True)

    def clear(self) -> None:
        """Empties the bar's line."""
        if self._is_terminal:
            click.echo(f"\r{' ' * self._width}\r", nl=False, err=True)


def progress_text(counts: BatchCounts, seconds: float) -> str:
    """Bar, answers of lines, errors, tokens a second, the time that is left."""
    done, missing = counts.num_kept + counts.num_answered, counts.num_lines - counts.num_kept - counts.num_answered
    filled = _BAR * done // counts.num_lines
    bar = f"batch [{'#' * filled}{'.' * (_BAR - filled)}] {done:,} of {counts.num_lines:,}"
    errors = f"  {counts.num_failed:,} errors" if counts.num_failed else ""
    rate = f"  {counts.completion_tokens / seconds:,.0f} tok/s" if seconds else ""
    left = f"  {seconds_text(seconds * missing / counts.num_answered)} left" if missing and counts.num_answered else ""
    return f"{bar}{errors}{rate}{left}"
