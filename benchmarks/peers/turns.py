"""Turns: every engine once a round, A B C A B C. Owns the order, the medians and what a ratio is."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from .question import Question


class Engine(Protocol):
    """What is compared. `rate` is tokens a second over all requests of a question, in a process of its own, or None
    where the engine is not asked it."""

    @property
    def name(self) -> str: ...

    def rate(self, model: Path, question: Question) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Range:
    """A median with the least and the most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Range":
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Answer:
    """The rates of one question, round by round; the first engine is the one whose speed the others' are held to."""

    question: Question
    rates: dict[str, list[float]]

    def ratio(self, of: str, to: str) -> Range:
        """Of the two rates in the same round: what slows down the machine for a while slows down both."""
        return Range.of([a / b for a, b in zip(self.rates[of], self.rates[to], strict=True)])

    def fields(self) -> dict[str, Any]:
        """Tokens a second of every round, and each ratio to the first engine's."""
        first, *others = self.rates
        ratios = {name: self.ratio(first, name) for name in others}
        return {
            "question": self.question.name,
            "prompt_tokens": self.question.prompt_tokens,
            "gen_tokens": self.question.gen_tokens,
            "batch": self.question.batch,
            "tok_s": self.rates,
            "ratios": {name: {"median": r.median, "min": r.least, "max": r.most} for name, r in ratios.items()},
        }


def ask(
    engines: Sequence[Engine],
    model: Path,
    question: Question,
    rounds: int,
    tell: Callable[[str, float], None],
    pause: float = 0.0,
) -> Answer:
    """`rounds` times every engine in turn, `pause` seconds after each; `tell` hears of each rate. An engine that is not
    asked this is left out."""
    rates: dict[str, list[float]] = {}
    for _ in range(rounds):
        for engine in engines:
            rate = engine.rate(model, question)
            if rate is not None:
                rates.setdefault(engine.name, []).append(rate)
                tell(engine.name, rate)
            time.sleep(pause)
    return Answer(question, rates)
