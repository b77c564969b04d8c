"""What the fit says, as tables and as constants. Owns their form; the figures are `planning`'s."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from planning_fit import ENGINES, NAMES, WEIGHT_CLASSES
from planning_rows import Case

if TYPE_CHECKING:
    from planning import Fitted

CONSTANTS = Path(__file__).parents[1] / "src/twostroke/roofline/efficiency.toml"
_SHARE, _FAR = 0.8, 0.5
Ratios = Mapping[str, Sequence[tuple[Case, float]]]
Band = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """A group of cases: how many, its median and 90th percentile of |predicted/measured - 1|, the share in bands."""

    name: str
    count: int
    median: float
    p90: float
    held: float

    @classmethod
    def of(cls, name: str, found: Sequence[tuple[Case, float]], bands: Mapping[str, Band]) -> "Line":
        size = np.abs([1 / ratio - 1 for _, ratio in found])
        held = [bands[case.stratum][0] <= ratio <= bands[case.stratum][1] for case, ratio in found]
        return cls(name, len(found), float(np.median(size)), float(np.quantile(size, 0.9)), float(np.mean(held)))


@dataclass(frozen=True)
class Report:
    """Scores by stratum, of the strictest group, by source; failures; rows left out; whether models fitted."""

    strata: Sequence[Line]
    strict: Sequence[Line]
    sources: Sequence[Line]
    failures: Sequence[tuple[Case, float]]
    bands: Mapping[str, Band]
    dropped: Mapping[str, Sequence[int]]
    fits: tuple[int, int]

    @classmethod
    def of(cls, found: Ratios, dropped: Mapping[str, Sequence[int]], fits: tuple[int, int]) -> "Report":
        bands = {name: band([ratio for _, ratio in cases]) for name, cases in found.items()}
        every = [pair for cases in found.values() for pair in cases]
        strict = {"all three": [pair for pair in every if pair[0].is_strict]}
        for case, ratio in strict["all three"]:
            strict.setdefault(_strict_group(case), []).append((case, ratio))
        dense = [pair for pair in every if not pair[0].moe and not pair[0].outlier and not pair[0].is_strict]
        strict["all other dense: decode and whole requests"] = [pair for pair in dense if pair[0].phase != "prefill"]
        strict["all dense: prefill"] = [pair for pair in dense if pair[0].phase == "prefill"]
        sources: dict[str, list[tuple[Case, float]]] = {}
        for case, ratio in every:
            sources.setdefault(f"{case.source}: {case.run}", []).append((case, ratio))
        far = [pair for pair in every if abs(1 / pair[1] - 1) > _FAR and not pair[0].outlier]
        return cls(
            [Line.of(name, cases, bands) for name, cases in found.items()],
            [Line.of(name, cases, bands) for name, cases in strict.items()],
            [Line.of(name, cases, bands) for name, cases in sorted(sources.items())],
            sorted(far, key=lambda pair: pair[0].row),
            bands,
            dropped,
            fits,
        )

    def lines(self) -> Iterator[str]:
        """For a terminal."""
        for title, group in (("strata", self.strata), ("strict", self.strict), ("sources", self.sources)):
            yield title
            for line in group:
                yield f"  {line.name:60s} {line.count:5d} {line.median:7.1%} {line.p90:7.1%} {line.held:6.0%}"
        yield f"fits or not: {self.fits[0]} of {self.fits[1]} right"
        yield f"left out: {sum(map(len, self.dropped.values()))} rows"
        for reason, rows in sorted(self.dropped.items(), key=lambda item: -len(item[1])):
            yield f"  {len(rows):5d} {reason}"

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "strict": {line.name: {"median": line.median, "p90": line.p90} for line in self.strict},
            "strata": {line.name: {"count": line.count, "median": line.median} for line in self.strata},
            "left_out": sum(map(len, self.dropped.values())),
        }


def band(of: Sequence[float]) -> Band:
    """Between which values the middle 80% lie, with as many left out below as above; 1 is always within."""
    ordered = np.sort(np.array(of))
    out = round((1 - _SHARE) * len(ordered))
    low, high = ordered[out // 2], ordered[len(ordered) - 1 - (out - out // 2)]
    return float(min(low, 1.0)), float(max(high, 1.0))


def write_constants(classes: Mapping[str, "Fitted"], bands: Mapping[str, Band]) -> None:
    """Replace the fitted classes in efficiency.toml; those of this engine, which others fit, stay."""
    text = CONSTANTS.read_text("utf-8") if CONSTANTS.exists() else ""
    head, _, rest = text.partition(_BEGIN)
    own = rest.partition(_END)[2]
    body = "\n".join("\n".join(_class_lines(fitted, bands)) for fitted in classes.values())
    CONSTANTS.write_text(f"{head}{_BEGIN}\n\n{body}\n{_END}{own}", "utf-8")


_BEGIN = "# --- fitted by benchmarks/planning.py: do not edit ---"
_END = "# --- end of what is fitted ---"


def _class_lines(fitted: "Fitted", bands: Mapping[str, Band]) -> Iterator[str]:
    engine = fitted.name.partition("/")[0]
    settings = ENGINES[engine]
    values = dict(zip(NAMES, fitted.factors, strict=True))
    yield f'[classes."{fitted.name}"]'
    yield f"step_s = {values['step_s']:.3g}"
    yield f"layer_s = {values['layer_s']:.3g}"
    for name in ("weights", "experts", "kv"):
        yield f"{name} = {1 / values[name]:.3g}"
    for phase in ("generated", "prompt"):
        shares = ", ".join(f"{kind} = {1 / values[f'{phase}.{kind}']:.3g}" for kind in WEIGHT_CLASSES)
        yield f"{phase} = {{ {shares} }}"
    yield f"attention = {1 / values['attention']:.3g}"
    yield 'generated_on = "f32"'
    kinds = ", ".join(f'{kind} = "{settings.prompt_on[kind]}"' for kind in WEIGHT_CLASSES)
    yield f"prompt_on = {{ {kinds} }}"
    yield f"few_rows = {settings.few_rows}"
    yield f"chunk_tokens = {settings.chunk_tokens}"
    devices = {case.device.name for case in fitted.cases}
    yield f'source = "{len(fitted.cases)} published speeds on {len(devices)} devices, fitted; see docs/planning.md"'
    yield f'[classes."{fitted.name}".bands]'
    runs = {case.run: case.stratum for case in fitted.cases if not case.outlier and case.engine == engine}
    for run, stratum in sorted(runs.items()):
        low, high = bands[stratum]
        yield f'"{run}" = [{low:.3f}, {high:.3f}]'
    yield ""


def _strict_group(case: Case) -> str:
    return "Apple" if case.kind == "apple" else "DGX Spark" if "Spark" in case.device.name else "GeForce"


def write_tables(path: Path, report: Report) -> None:
    """Replace what is between the marks of a page."""
    text = path.read_text("utf-8")
    before, mark, rest = text.partition("<!-- tables: benchmarks/planning.py -->")
    after = rest.partition("<!-- end of tables -->")[2]
    body = "\n".join(_tables(report))
    path.write_text(f"{before}{mark}\n\n{body}\n\n<!-- end of tables -->{after}", "utf-8")


def _tables(report: Report) -> Iterator[str]:
    for title, group in (
        ("Where accuracy is promised", report.strict),
        ("By stratum", report.strata),
        ("By source", report.sources),
    ):
        yield f"### {title}\n"
        yield "| | cases | median error | p90 | in the 80% band |\n|---|--:|--:|--:|--:|"
        for line in group:
            yield f"| {line.name} | {line.count} | {line.median:.1%} | {line.p90:.0%} | {line.held:.0%} |"
        yield ""
    yield "### Failures: off by more than half\n"
    yield "| model, weights | hardware, engine | run | predicted / measured |\n|---|---|---|--:|"
    for case, ratio in report.failures:
        ran = f"{case.run}, batch {case.batch}, {case.prompt or case.depth} tokens"
        yield f"| {case.model.name}, {case.bits:g} bits | {case.device.name}, {case.engine} | {ran} | {1 / ratio:.2f} |"
    yield "\n### Rows left out\n\n| reason | rows |\n|---|--:|"
    for reason, rows in sorted(report.dropped.items(), key=lambda item: -len(item[1])):
        yield f"| {reason} | {len(rows)} |"
    yield f"\nFits or not: {report.fits[0]} of {report.fits[1]} rows that say are predicted right."
