"""Slo: bounds on a request's metrics. Owns how they are written and when a request meets them."""

import math
from dataclasses import dataclass
from typing import Self

from twostroke.bench.record import Record
from twostroke.errors import ConfigError

_NAMES = ("ttft", "first_content", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class Slo:
    """Bounds in seconds by metric's name; a request that has no such metric (one token has no TPOT) meets it."""

    bounds: tuple[tuple[str, float], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """From "ttft=0.5,tpot=0.05". Raises ConfigError."""
        bounds = {}
        for part in text.split(","):
            name, _, number = (piece.strip() for piece in part.partition("="))
            try:
                bound = float(number)
            except ValueError:
                bound = math.nan
            if name not in _NAMES or not bound > 0 or name in bounds:
                raise ConfigError(
                    f"slo must be like ttft=0.5,tpot=0.05 (seconds; of {', '.join(_NAMES)}), not {text!r}"
                )
            bounds[name] = bound
        return cls(tuple(bounds.items()))

    def is_met(self, record: Record) -> bool:
        values = ((getattr(record, name), bound) for name, bound in self.bounds)
        return record.succeeded and all(value is None or value <= bound for value, bound in values)

    def __str__(self) -> str:
        return ", ".join(f"{name} <= {bound:g} s" for name, bound in self.bounds)
