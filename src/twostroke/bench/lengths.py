"""Lengths: a number of tokens, fixed or drawn. Owns the way one is written and drawn."""

import math
import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from twostroke.errors import ConfigError

_FORM = re.compile(r"(\d[\d_]*)(?:([-~])(\d[\d_]*(?:\.\d+)?))?")
_MOST = 10_000_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """A whole number of tokens from `low` to `high`, uniform; with a `deviation` normal around their middle."""

    text: str
    low: int
    high: int
    deviation: float = 0.0

    @classmethod
    def parse(cls, text: str, name: str) -> Self:
        """From "512", "100-300" (uniform, both ends included) or "512~64" (normal, cut at 1 and at twice the mean).

        Raises ConfigError naming the option `name`.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f"{name} must look like 512, 100-300 or 512~64, not {text!r}")
        first, kind, second = match.groups()
        mean = int(first)
        if kind == "-":
            lengths = cls(text, mean, math.ceil(float(second)))
        elif kind == "~":
            lengths = cls(text, 1, 2 * mean - 1, float(second))
        else:
            lengths = cls(text, mean, mean)
        if not 1 <= lengths.low <= lengths.high <= _MOST:
            raise ConfigError(f"{name} must be 1 token or more, from low to high, at most {_MOST:,}; not {text!r}")
        return lengths

    def draw(self, rng: np.random.Generator) -> int:
        """One length, in tokens."""
        if not self.deviation:
            return int(rng.integers(self.low, self.high + 1))
        return min(max(round(rng.normal((self.low + self.high) / 2, self.deviation)), self.low), self.high)
