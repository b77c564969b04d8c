"""How a load test goes on, on stderr: a bar on a terminal, else a line now and then. Owns the form of both.

Plain writes, and few: what draws here runs in the thread that takes the times.
"""

import shutil
import sys

import click

from twostroke.bench.gate import Live

_BAR = 24
_LINE_SECONDS = 5.0


class LoadProgress:
    """Shows a `Live` each time it is called; `clear` before other output."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown_at = -_LINE_SECONDS
        self._stage = -1
        self._width = shutil.get_terminal_size().columns - 1

    def __call__(self, live: Live) -> None:
        text = live_text(live)
        if self._is_terminal:
            click.echo(f"\r{text[: self._width].ljust(self._width)}", nl=False, err=True)
        elif live.stage.index != self._stage or live.seconds - self._shown_at >= _LINE_SECONDS:
            self._stage, self._shown_at = live.stage.index, live.seconds
            click.echo(text, err=True)

    def clear(self) -> None:
        """Empties the bar's line."""
        if self._is_terminal:
            click.echo(f"\r{' ' * self._width}\r", nl=False, err=True)


def live_text(live: Live) -> str:
    """Bar, requests, those under way, tokens a second, the last TTFT, errors."""
    filled = round(_BAR * live_share(live))
    bar = f"[{'#' * filled}{'.' * (_BAR - filled)}]"
    ttft = "" if live.last_ttft is None else f"  TTFT {live.last_ttft * 1e3:,.0f} ms"
    errors = f"  {live.num_errors} errors" if live.num_errors else ""
    counts = f"{live.num_done} done, {live.num_active} under way"
    return f"{live.stage.name} {bar} {counts}  {live.deltas_per_second:,.0f} deltas/s{ttft}{errors}"


def live_share(live: Live) -> float:
    """How much of the stage is done: of its requests or of its seconds, whichever is further."""
    stage = live.stage
    of_requests = (live.num_done + live.num_errors) / stage.requests if stage.requests else 0.0
    of_seconds = live.seconds / (stage.ramp + stage.seconds) if stage.seconds else 0.0
    return min(1.0, max(of_requests, of_seconds))
