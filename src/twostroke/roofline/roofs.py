"""Roofs: what was measured on one machine, each number with its date. Owns joining, expiry and the form on disk.

`RoofFile` keeps the roofs of every machine seen (a home directory may be shared) in one small JSON file. It is a cache:
unreadable, it is empty; unwritable, nothing is kept; and nothing fails.
"""

import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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
    """Read bandwidth by working set in bytes, FLOP/s by kind of arithmetic."""

    reads: Mapping[int, Measured] = field(default_factory=dict)
    flops: Mapping[str, Measured] = field(default_factory=dict)

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
        return Roofs(dict(sorted(reads.items())), flops)

    def envelope(self) -> tuple[tuple[int, float], ...]:
        """Bandwidth by working set, ascending. What a larger set reached, a smaller one can: so it never rises."""
        best, points = 0.0, []
        for size, measured in sorted(self.reads.items(), reverse=True):
            best = max(best, measured.rate)
            points.append((size, best))
        return tuple(reversed(points))

    def oldest(self) -> datetime | None:
        return min((measured.at for measured in (*self.reads.values(), *self.flops.values())), default=None)


def find_read(reads: Mapping[int, Measured], working_set_bytes: int) -> int | None:
    """The measured working set nearest to this one, if it counts as the same."""
    near = [size for size in reads if 1 / SAME_SET <= size / working_set_bytes <= SAME_SET]
    return min(near, key=lambda size: abs(size - working_set_bytes), default=None)


class RoofFile:
    """`roofs.json` in the user's cache directory, or another file. Replaced as a whole: no reader sees a piece."""

    def __init__(self, path: Path | None = None, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.path = path or cache_dir() / "roofs.json"
        self.now = now

    def load(self, machine: str) -> Roofs:
        """What is known of a machine and not older than 30 days; possibly nothing."""
        return self._parse(self._entries().get(machine))

    def raise_to(self, machine: str, roofs: Roofs) -> Roofs:
        """Enter new measurements; returns what is now known."""
        entries = self._entries()
        joined = self._parse(entries.get(machine)).raised_by(roofs)
        entries[machine] = {
            "reads": [{"bytes": size, "rate": m.rate, "at": m.at.isoformat()} for size, m in joined.reads.items()],
            "flops": [{"kind": kind, "rate": m.rate, "at": m.at.isoformat()} for kind, m in joined.flops.items()],
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
            reads = {int(read["bytes"]): self._measured(read) for read in entry["reads"]}
            flops = {str(kind["kind"]): self._measured(kind) for kind in entry["flops"]}
        except (KeyError, TypeError, ValueError, OverflowError):
            return Roofs()
        return Roofs(
            {size: m for size, m in sorted(reads.items()) if m is not None and size > 0},
            {kind: m for kind, m in flops.items() if m is not None},
        )

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
