"""How far a fetch has come. Owns the figures, not how they are shown."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

_REPORT_SECONDS = 0.1

Stage = Literal["wait", "fetch", "check"]


@dataclass(frozen=True, slots=True)
class PullProgress:
    """A moment of a fetch: `wait` (another process fetches the same model), `fetch`, or `check` (the sum of bytes
    that are already there).

    Sizes are in bytes, the rate in bytes per second since this fetch began or resumed; `total_bytes` is None where
    the server does not say.
    """

    model: str
    stage: Stage
    num_bytes: int
    total_bytes: int | None
    bytes_per_second: float


class Meter:
    """Turns byte counts into at most ten `PullProgress` a second."""

    def __init__(self, model: str, total_bytes: int | None, callback: Callable[[PullProgress], None]) -> None:
        self.total_bytes = total_bytes
        self._model = model
        self._callback = callback
        self._stage: Stage | None = None
        self._first_bytes = 0
        self._started = self._reported = 0.0

    def report(self, stage: Stage, num_bytes: int, *, now: bool = False) -> None:
        """Say that `num_bytes` are there; `now` reports even if the last report was a moment ago."""
        clock = time.monotonic()
        if stage != self._stage:
            self._stage, self._first_bytes, self._started, now = stage, num_bytes, clock, True
        if now or clock - self._reported >= _REPORT_SECONDS:
            self._reported = clock
            elapsed = clock - self._started
            rate = max(0, num_bytes - self._first_bytes) / elapsed if elapsed > 0 else 0.0
            self._callback(PullProgress(self._model, stage, num_bytes, self.total_bytes, rate))
