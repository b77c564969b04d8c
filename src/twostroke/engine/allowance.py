"""Allowance: what one step has left for rows that lag behind. Owns how far a request's next chunk goes; no request."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from twostroke.engine.plan import Chunk, next_chunk
from twostroke.engine.request import Request
from twostroke.program.cost import ChunkShape


class Allowance:
    """Rows and seconds left in a step, taken chunk by chunk; `seconds_of` says what a chunk takes.

    However little time there is, the step's first chunk has one row.
    """

    def __init__(self, rows: int, chunk_rows: int, seconds: float, seconds_of: Callable[[ChunkShape], float]) -> None:
        self._rows, self._chunk_rows, self._seconds = rows, chunk_rows, seconds
        self._seconds_of = seconds_of
        self._is_first = True

    @property
    def is_spent(self) -> bool:
        return self._rows <= 0 or not (self._is_first or self._seconds > 0)

    @contextmanager
    def halved(self) -> Iterator[None]:
        """Within, no more than half of what is left can be taken."""
        rows, seconds = self._rows // 2, self._seconds / 2
        self._rows -= rows
        self._seconds -= seconds if math.isfinite(seconds) else 0.0
        yield
        self._rows += rows
        self._seconds += seconds if math.isfinite(seconds) else 0.0

    def chunk(self, request: Request) -> Chunk | None:
        """The request's next rows under what is left, which they are taken from; None where not even one fits."""
        rows = min(self._rows, self._chunk_rows)
        if rows > 0 and math.isfinite(self._seconds):
            rows = self._within_time(request, rows)
            if not rows:
                self._seconds = 0.0
        if rows <= 0:
            return None
        chunk = next_chunk(request, rows)
        self._rows -= chunk.length
        self._is_first = False
        if math.isfinite(self._seconds):
            self._seconds -= self._seconds_of(chunk)
        return chunk

    def _within_time(self, request: Request, most: int) -> int:
        """Rows that the seconds left pay for, `most` at most."""
        start, phase = request.num_computed, request.next_phase
        rows = min(most, request.num_tokens - start)
        for _ in range(2):  # later rows see more keys and cost more: the second time is for what they add
            seconds = self._seconds_of(ChunkShape(start, rows, 0, phase=phase))
            if seconds > self._seconds:
                rows = int(rows * max(0.0, self._seconds) / seconds)
            if not rows:
                return int(self._is_first)
        return rows
