"""This engine's constants from timed steps. Owns the regression; the formula is the planner's own (`step_time`).

Reading and arithmetic go on together here, so that a step's time is no linear sum. What is minimised is the mean of
|log(predicted / measured)|: Levenberg's method on the logarithms of the constants, reweighted, each overlap in turn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from twostroke.roofline.step_time import Seconds

Array = npt.NDArray[np.float64]
OVERLAPS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_PARTS = tuple(field.name for field in fields(Seconds))[:-1]  # all but storage
_BY_TYPE = ("generated", "tiled", "prompt", "expanded")
# What a constant may be as a factor of nominal seconds, and where the search begins. Shares are at most 1.
_COMMON: Mapping[str, tuple[float, float, float]] = {
    "step": (1e-7, 2e-5, 1e-3),
    "layer": (1e-8, 2e-6, 1e-4),
    "request": (1e-7, 2e-5, 1e-3),
    "weights": (1.0, 1.05, 3.0),
    "experts": (1.0, 1.1, 3.0),
    "kv": (1.0, 1.1, 5.0),
    "attention": (1.0, 3.0, 50.0),
    "prompt_attention": (1.0, 3.0, 50.0),
    "activations": (0.1, 1.0, 30.0),
}
_TYPE_RANGE = (1.0, 3.0, 50.0)
_PRIOR = 1e-4  # how many steps what the search begins with counts for
_ROUNDS, _NOISE = 60, 0.02


@dataclass(frozen=True, slots=True)
class Timing:
    """A step that was timed: nominal seconds of what it does, and what it took."""

    name: str
    kind: str  # the type of the weights, or "mixture"
    nominal: Seconds
    seconds: float


@dataclass(frozen=True)
class Constants:
    """Factors of nominal seconds by part, "generated.q4_k" and the like where they differ by type, and the overlap."""

    factors: Mapping[str, float]
    overlap: float

    def seconds(self, timings: Sequence[Timing]) -> Array:
        """(num_timings,) predicted."""
        names = list(self.factors)
        return _predict(_table(timings, names), np.log(list(self.factors.values())), self.overlap, names)


def names_of(timings: Sequence[Timing]) -> list[str]:
    """The constants that these timings need."""
    kinds = dict.fromkeys(timing.kind for timing in timings)
    return [*_COMMON, *(f"{part}.{kind}" for part in _BY_TYPE for kind in kinds)]


def fit(timings: Sequence[Timing]) -> Constants:
    """The constants nearest to all timings. Deterministic."""
    names = names_of(timings)
    ranges = np.log([_COMMON.get(name, _TYPE_RANGE) for name in names])
    table, measured = _table(timings, names), np.log([timing.seconds for timing in timings])
    found = []
    for overlap in OVERLAPS:

        def errors(at: Array, overlap: float = overlap) -> Array:
            result: Array = np.log(_predict(table, at, overlap, names)) - measured
            return result

        best = _search(errors, ranges)
        found.append((float(np.abs(errors(best)).mean()), overlap, best))
    _, overlap, best = min(found, key=lambda each: each[0])
    return Constants(dict(zip(names, np.exp(best).tolist(), strict=True)), overlap)


def _table(timings: Sequence[Timing], names: Sequence[str]) -> Array:
    """(num_timings, num_names): nominal seconds that each constant multiplies."""
    table = np.zeros((len(timings), len(names)))
    for row, timing in zip(table, timings, strict=True):
        for part in _PARTS:
            name = f"{part}.{timing.kind}" if part in _BY_TYPE else part
            row[names.index(name)] = getattr(timing.nominal, part)
    return table


def _predict(table: Array, logs: Array, overlap: float, names: Sequence[str]) -> Array:
    """What `step_time.overlapped` adds up to, for all rows at once."""
    parts = table * np.exp(logs)

    def total(*of: str) -> Array:
        sums: Array = parts[:, [name.partition(".")[0] in of for name in names]].sum(axis=1)
        return sums

    rows = _norm(total("weights", "experts"), total(*_BY_TYPE), overlap)
    context = _norm(total("kv"), total("attention", "prompt_attention"), overlap)
    return rows + context + total("step", "layer", "request", "activations")


def _norm(memory: Array, compute: Array, overlap: float) -> Array:
    longer = np.maximum(np.maximum(memory, compute), 1e-12)
    result: Array = longer * ((memory / longer) ** overlap + (compute / longer) ** overlap) ** (1 / overlap)
    return result


def _search(errors: Callable[[Array], Array], ranges: Array) -> Array:
    """Levenberg-Marquardt within the ranges, (num_names, 3), each error weighted by one over its size. A constant at
    the end of its range that is pulled beyond stays there, and the others move without it."""
    low, start, high = ranges.T
    at, damping, step = start.copy(), 1e-2, 1e-5
    cost = float(np.abs(errors(at)).mean())
    for _ in range(_ROUNDS):
        now = errors(at)
        slopes = np.array([(errors(at + step * unit) - now) / step for unit in np.eye(len(at))]).T
        weights = 1 / np.maximum(np.abs(now), _NOISE)
        gram = slopes.T @ (slopes * weights[:, None]) + _PRIOR * np.eye(len(at))
        pull = slopes.T @ (now * weights) + _PRIOR * (at - start)
        free = ~((at <= low) & (pull > 0) | (at >= high) & (pull < 0))
        before = cost
        while damping < 1e9 and cost == before:
            move = np.zeros(len(at))
            own = gram[np.ix_(free, free)]
            move[free] = np.linalg.solve(own + damping * np.diag(np.diag(own)), pull[free])
            tried = np.clip(at - np.clip(move, -1, 1), low, high)
            if (better := float(np.abs(errors(tried)).mean())) < cost:
                at, cost, damping = tried, better, damping / 3
            else:
                damping *= 4
        if before - cost < 1e-6:
            return at
    return at
