"""Roofs: what was measured on one machine, each number with its date. Owns joining, expiry and the form on disk.

`RoofFile` keeps the roofs of every machine seen (a home directory may be shared) in one small JSON file. It is a cache:
unreadable, it is empty; unwritable, nothing is kept; and nothing fails.
"""

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from twostroke.errors import ConfigError
from twostroke.weights.cache import cache_dir

MAX_AGE = timedelta(days=30)
SAME_SET = 1.05  # working sets within this factor count as one


@dataclass(frozen=True, slots=True)
class Measured:
    """A rate, per second, and when it was measured."""

    rate: float
    at: datetime


@dataclass(frozen=True, slots=True)
class Roofs:
    """Read bandwidth by working set in bytes, FLOP/s by kind of arithmetic: the best that was seen.

    `latest` and `slowest` are of reading too: a machine whose memory neighbours share reads at half the rate at times.
    """

    reads: Mapping[int, Measured] = field(default_factory=dict)
    flops: Mapping[str, Measured] = field(default_factory=dict)
    latest: Mapping[int, Measured] = field(default_factory=dict)
    slowest: Mapping[int, Measured] = field(default_factory=dict)

    def measured_again(self, other: "Roofs") -> "Roofs":
        """Both together, `other` being what was just measured."""
        best = self.raised_by(other)
        latest, slowest = dict(self.latest), dict(self.slowest)
        for size, measured in other.reads.items():
            if (known := find_read(latest, size)) is not None:
                del latest[known]
            latest[size] = measured
            if (known := find_read(slowest, size)) is None:
                slowest[size] = measured
            elif measured.rate < slowest[known].rate:
                del slowest[known]
                slowest[size] = measured
        return replace(best, latest=dict(sorted(latest.items())), slowest=dict(sorted(slowest.items())))

    def memory_span(self) -> tuple[float, float]:
        """The slowest and the best rate of the largest working set, as shares of the latest."""
        size = max(self.latest, default=0)
        best, slowest = find_read(self.reads, size), find_read(self.slowest, size)
        if best is None or slowest is None:
            return 1.0, 1.0
        now = self.latest[size].rate
        return min(1.0, self.slowest[slowest].rate / now), max(1.0, self.reads[best].rate / now)

    def raised_by(self, other: "Roofs") -> "Roofs":
        """Both together; where both measured the same, the higher, for a roof is what was reached at best."""
        reads = dict(self.reads)
        for size, measured in other.reads.items():
            known = find_read(reads, size)
            if known is None:
                reads[size] = measured
            elif measured.rate > reads[known].rate:
                del reads[known]
                reads[size] = measured
        flops = dict(self.flops)
        for kind, measured in other.flops.items():
            if kind not in flops or measured.rate > flops[kind].rate:
                flops[kind] = measured
        return replace(self, reads=dict(sorted(reads.items())), flops=flops)

    def envelope(self) -> tuple[tuple[int, float], ...]:
        """Latest bandwidth by working set, ascending. It never rises: what a larger set reached, a smaller one can."""
        best, points = 0.0, []
        for size, measured in sorted((self.latest or self.reads).items(), reverse=True):
            best = max(best, measured.rate)
            points.append((size, best))
        return tuple(reversed(points))

    def oldest(self) -> datetime | None:
        reads = self.latest or self.reads
        return min((measured.at for measured in (*reads.values(), *self.flops.values())), default=None)


def find_read(reads: Mapping[int, Measured], working_set_bytes: int) -> int | None:
    """The measured working set nearest to this one, if it counts as the same."""
    near = [size for size in reads if size <= SAME_SET * working_set_bytes and working_set_bytes <= SAME_SET * size]
    return min(near, key=lambda size: abs(size - working_set_bytes), default=None)


def _records(key: str, measured: Mapping[Any, Measured]) -> list[dict[str, Any]]:
    return [{key: name, "rate": one.rate, "at": one.at.isoformat()} for name, one in measured.items()]


def _default_path() -> Path:
    try:
        return cache_dir() / "roofs.json"
    except ConfigError:  # no home: nothing is kept
        return Path(os.devnull) / "roofs.json"


class RoofFile:
    """`roofs.json` in the user's cache directory, or another file. Replaced as a whole: no reader sees a piece."""

    def __init__(self, path: Path | None = None, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.path = path or _default_path()
        self.now = now

    def load(self, machine: str) -> Roofs:
        """What is known of a machine and not older than 30 days; possibly nothing."""
        return self._parse(self._entries().get(machine))

    def raise_to(self, machine: str, roofs: Roofs) -> Roofs:
        """Enter new measurements; returns what is now known."""
        entries = self._entries()
        joined = self._parse(entries.get(machine)).measured_again(roofs)
        entries[machine] = {
            **{name: _records("bytes", getattr(joined, name)) for name in ("reads", "latest", "slowest")},
            "flops": _records("kind", joined.flops),
        }
        with contextlib.suppress(OSError):
            self._write(json.dumps(entries, indent=1))
        return joined

    def _entries(self) -> dict[str, Any]:
        try:
            entries = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return entries if isinstance(entries, dict) else {}

    def _parse(self, entry: Any) -> Roofs:
        try:
            reads, latest, slowest = (self._reads(entry.get(name, ())) for name in ("reads", "latest", "slowest"))
            flops = {str(kind["kind"]): self._measured(kind) for kind in entry["flops"]}
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return Roofs()
        return Roofs(reads, {kind: m for kind, m in flops.items() if m is not None}, latest, slowest)

    def _reads(self, records: Iterable[Mapping[str, Any]]) -> dict[int, Measured]:
        found = {int(record["bytes"]): self._measured(record) for record in records}
        return {size: m for size, m in sorted(found.items()) if m is not None and size > 0}

    def _measured(self, record: Mapping[str, Any]) -> Measured | None:
        """None for a record too old, or from the future: the clock was wrong then or is now."""
        rate, at = float(record["rate"]), datetime.fromisoformat(record["at"])
        if not (rate > 0 and math.isfinite(rate)):
            raise ValueError(f"{rate} is no rate")
        age = self.now() - at
        return Measured(rate, at) if -timedelta(days=1) < age <= MAX_AGE else None

    def _write(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        import tempfile  # only where something is written

        handle, fresh = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(fresh, self.path)
        except OSError:
            os.unlink(fresh)
            raise
