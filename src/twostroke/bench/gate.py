"""Gate: whether another request of a stage may go out, and the record of each that does. Owns a stage's limits and its
live counts.
"""

import hashlib
import math
import time
from dataclasses import dataclass, field

from twostroke.bench.lag import Lag
from twostroke.bench.load import Stage
from twostroke.bench.record import Record


@dataclass(slots=True)
class StageRun:
    """What a stage gave: a record of every request of it, those of its warm-up and ramp marked."""

    stage: Stage
    records: list[Record] = field(default_factory=list)
    lag: Lag | None = None
    was_stopped: bool = False

    @property
    def measured(self) -> list[Record]:
        return [record for record in self.records if not record.is_warmup]


@dataclass(frozen=True, slots=True)
class Live:
    """How far a stage has come: counts of measured requests, deltas a second since the last look."""

    stage: Stage
    seconds: float
    num_done: int
    num_active: int
    num_errors: int
    deltas_per_second: float
    last_ttft: float | None


class Gate:
    """A stage's limits. Until `open` is called every request is warm-up, and only the count of those is a limit."""

    def __init__(self, stage: Stage, seen: set[bytes]) -> None:
        self.run = StageRun(stage)
        self._seen = seen
        self._active: set[Record] = set()
        self._left: float = stage.warmup
        self._started = self._measure_from = self._close_at = math.inf
        self._num_done = self._num_errors = 0
        self._num_deltas = self._last_deltas = 0
        self._last_look = 0.0
        self._last_ttft: float | None = None

    def open(self, now: float) -> None:
        """The load begins: after the stage's ramp requests are measured."""
        stage = self.run.stage
        self._left = math.inf if stage.requests is None else stage.requests
        self._started = self._last_look = now
        self._measure_from = now + stage.ramp
        self._close_at = self._measure_from + (math.inf if stage.seconds is None else stage.seconds)

    def close(self) -> None:
        """No request goes out any more."""
        self._left = 0
        self.run.was_stopped = True

    def is_open(self, now: float) -> bool:
        return self._left > 0 and now < self._close_at

    def admit(self, conversation: int, turn: int, body: bytes) -> Record | None:
        """The record of a request that goes out now; None where none may. Notices a body that was sent before."""
        now = time.perf_counter()
        if not self.is_open(now):
            return None
        is_warmup = now < self._measure_from
        if not is_warmup or math.isinf(self._started):
            self._left -= 1
        key = hashlib.blake2b(body, digest_size=16).digest()
        record = Record(self.run.stage.index, conversation, turn, is_warmup, is_repeated=key in self._seen)
        self._seen.add(key)
        self.run.records.append(record)
        self._active.add(record)
        return record

    def leave(self, record: Record) -> None:
        """The request has ended, in whatever way."""
        self._active.discard(record)
        self._num_deltas += len(record.delta_times)
        if not record.is_warmup:
            self._num_done += record.succeeded
            self._num_errors += record.error is not None
            self._last_ttft = record.ttft or self._last_ttft

    def look(self, now: float) -> Live:
        """The live figures."""
        num_deltas = self._num_deltas + sum(len(record.delta_times) for record in self._active)
        rate = (num_deltas - self._last_deltas) / max(now - self._last_look, 1e-9)
        self._last_deltas, self._last_look = num_deltas, now
        seconds = max(0.0, now - self._started)
        return Live(self.run.stage, seconds, self._num_done, len(self._active), self._num_errors, rate, self._last_ttft)
