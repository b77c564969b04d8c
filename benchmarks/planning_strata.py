"""Strata: which measurements are scored together, and between which errors most of them lie. Owns both rules.

Strata were fixed before anything was fitted, and by counts alone: what was run, by which engine, on which kind of
hardware. While one has under 12 cases, the smallest joins the smallest of its neighbours: one of the same run and
engine, or else of the same run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from planning_rows import Case

LEAST, SHARE = 12, 0.8
Band = tuple[float, float]
Group = tuple[str, str, str]  # run, engine, kind of hardware
Ratio = tuple[Case, float]  # measured over predicted time


def stratify(cases: Sequence[Case]) -> Mapping[Group, str]:
    """The name of the stratum of each group."""
    strata: list[list[Group]] = [[group] for group in sorted({case.group for case in cases})]
    counts = {group: sum(case.group == group for case in cases) for group in (stratum[0] for stratum in strata)}

    def size(stratum: Sequence[Group]) -> int:
        return sum(counts[group] for group in stratum)

    alone: list[list[Group]] = []  # few, and nothing else of their run
    while small := [stratum for stratum in strata if size(stratum) < LEAST and stratum not in alone]:
        joins = min(small, key=size)
        near = [other for other in strata if other is not joins and other[0][0] == joins[0][0]]
        near = [other for other in near if {group[1] for group in other} & {group[1] for group in joins}] or near
        if near:
            into = min(near, key=size)
            strata.remove(joins)
            into += joins
        else:
            alone.append(joins)
    return {group: _name(stratum) for stratum in strata for group in stratum}


def _name(stratum: Sequence[Group]) -> str:
    by_engine: dict[str, list[str]] = {}
    for _, engine, kind in stratum:
        by_engine.setdefault(engine, []).append(kind)
    parts = [f"{engine} on {', '.join(kinds)}" if any(kinds) else engine for engine, kinds in by_engine.items()]
    return ": ".join(filter(None, (stratum[0][0], "; ".join(parts))))


def band(of: Sequence[float]) -> Band:
    """Between which values the middle 80% of these lie. Where 1 is in a tail, 80% lie between it and the other end."""
    ordered = np.sort(np.array(of))
    count, out = len(ordered), round((1 - SHARE) * len(ordered))
    low, high = ordered[out // 2], ordered[count - 1 - (out - out // 2)]
    if low > 1:
        below = int((ordered < 1).sum())
        return 1.0, float(ordered[min(count - 1, count - 1 - out + below)])
    if high < 1:
        above = int((ordered > 1).sum())
        return float(ordered[max(0, out - above)]), 1.0
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Score:
    """A case and how it was predicted.

    ratio       measured over predicted time, of constants fitted without the case's hardware
    band        of its stratum; of_others: of its stratum's cases on other hardware, None where they are too few
    """

    case: Case
    ratio: float
    stratum: str
    band: Band
    of_others: Band | None

    @property
    def error(self) -> float:
        """|predicted / measured - 1|"""
        return abs(1 / self.ratio - 1)

    @property
    def held(self) -> bool:
        return self.band[0] <= self.ratio <= self.band[1]

    @property
    def held_by_others(self) -> bool | None:
        return None if self.of_others is None else self.of_others[0] <= self.ratio <= self.of_others[1]


def score(ratios: Sequence[Ratio]) -> list[Score]:
    """All cases, scored in their strata; in order of the strata's names."""
    names = stratify([case for case, _ in ratios])
    strata: dict[str, list[Ratio]] = {name: [] for name in sorted(set(names.values()))}
    for case, ratio in ratios:
        strata[names[case.group]].append((case, ratio))
    return [each for name, found in strata.items() for each in _score_stratum(name, found)]


def _score_stratum(name: str, found: Sequence[Ratio]) -> Iterator[Score]:
    own = band([ratio for _, ratio in found])
    of_others: dict[str, Band | None] = {}
    for device in {case.device.name for case, _ in found}:
        others = [ratio for case, ratio in found if case.device.name != device]
        of_others[device] = band(others) if len(others) >= LEAST else None
    for case, ratio in found:
        yield Score(case, ratio, name, own, of_others[case.device.name])
