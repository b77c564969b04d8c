"""What the fit says, as tables and as constants. Owns their form; the figures are `planning`'s."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from planning_fit import ENGINES, NAMES, WEIGHT_CLASSES
from planning_rows import Case
from planning_strata import Band, Score

if TYPE_CHECKING:
    from planning import Fitted

CONSTANTS = Path(__file__).parents[1] / "src/twostroke/roofline/efficiency.toml"
_FAR = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    """A group of cases: how many, its median and 90th percentile of |predicted/measured - 1|, the share in the bands
    of their strata, and the share in those bands as other hardware alone gives them (None where none has one)."""

    name: str
    count: int
    median: float
    p90: float
    held: float
    held_by_others: float | None

    @classmethod
    def of(cls, name: str, found: Sequence[Score]) -> "Line":
        size = np.array([each.error for each in found])
        others = [each.held_by_others for each in found if each.held_by_others is not None]
        held = float(np.mean([each.held for each in found]))
        by_others = float(np.mean(others)) if others else None
        return cls(name, len(found), float(np.median(size)), float(np.quantile(size, 0.9)), held, by_others)


@dataclass(frozen=True)
class Report:
    """Scores by stratum, of the strictest group, by source; failures; rows left out; whether models fitted."""

    scores: Sequence[Score]
    strata: Sequence[Line]
    strict: Sequence[Line]
    sources: Sequence[Line]
    failures: Sequence[Score]
    dropped: Mapping[str, Sequence[int]]
    fits: tuple[int, int]

    @classmethod
    def of(cls, scores: Sequence[Score], dropped: Mapping[str, Sequence[int]], fits: tuple[int, int]) -> "Report":
        strict = {"all three": [each for each in scores if each.case.is_strict]}
        for each in strict["all three"]:
            strict.setdefault(_strict_group(each.case), []).append(each)
        usual = [each for each in scores if not each.case.moe and not each.case.outlier and not each.case.is_strict]
        strict["all other dense: decode and whole requests"] = [each for each in usual if each.case.phase != "prefill"]
        strict["all dense: prefill"] = [each for each in usual if each.case.phase == "prefill"]
        strata, sources = _grouped(scores, lambda each: each.stratum), _grouped(scores, _source)
        far = [each for each in scores if each.error > _FAR and not each.case.outlier]
        return cls(
            scores,
            [Line.of(name, found) for name, found in strata.items()],
            [Line.of(name, found) for name, found in strict.items()],
            [Line.of(name, found) for name, found in sorted(sources.items())],
            sorted(far, key=lambda each: each.case.row),
            dropped,
            fits,
        )

    def lines(self) -> Iterator[str]:
        """For a terminal."""
        for title, group in (("strata", self.strata), ("strict", self.strict), ("sources", self.sources)):
            yield title
            for line in group:
                errors = f"{line.count:5d} {line.median:7.1%} {line.p90:7.1%}"
                yield f"  {line.name:100s} {errors} {line.held:6.0%} {_share(line):>5}"
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


def _grouped(scores: Iterable[Score], key: Callable[[Score], str]) -> dict[str, list[Score]]:
    groups: dict[str, list[Score]] = {}
    for each in scores:
        groups.setdefault(key(each), []).append(each)
    return groups


def _source(each: Score) -> str:
    return f"{each.case.source}: {each.case.run}"


def _share(line: Line) -> str:
    return "" if line.held_by_others is None else f"{line.held_by_others:.0%}"


def write_constants(classes: Mapping[str, "Fitted"], scores: Iterable[Score]) -> None:
    """Replace the fitted classes in efficiency.toml; those of this engine, which others fit, stay."""
    text = CONSTANTS.read_text("utf-8") if CONSTANTS.exists() else ""
    head, _, rest = text.partition(_BEGIN)
    own = rest.partition(_END)[2]
    bands = {(each.case.engine, each.case.kind, each.case.run): each.band for each in scores if not each.case.outlier}
    body = "\n".join("\n".join(_class_lines(fitted, bands)) for fitted in classes.values())
    CONSTANTS.write_text(f"{head}{_BEGIN}\n\n{body}\n{_END}{own}", "utf-8")


_BEGIN = "# --- fitted by benchmarks/planning.py: do not edit ---"
_END = "# --- end of what is fitted ---"


def _class_lines(fitted: "Fitted", bands: Mapping[tuple[str, str, str], Band]) -> Iterator[str]:
    engine, _, hardware = fitted.name.partition("/")
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
    for name in ("attention", "prompt_attention"):
        yield f"{name} = {1 / values[name]:.3g}"
    yield 'generated_on = "f32"'
    kinds = ", ".join(f'{kind} = "{settings.prompt_on[kind]}"' for kind in WEIGHT_CLASSES)
    yield f"prompt_on = {{ {kinds} }}"
    yield f"few_rows = {settings.few_rows}"
    yield f"chunk_tokens = {settings.chunk_tokens}"
    devices = {case.device.name for case in fitted.cases}
    yield f'source = "{len(fitted.cases)} published speeds on {len(devices)} devices, fitted; see docs/planning.md"'
    yield 'bands_of = "published speeds of its kind, each predicted without its own hardware"'
    yield f'[classes."{fitted.name}".bands]'
    runs = {run: found for (own, kind, run), found in bands.items() if (own, kind) == (engine, hardware)}
    for run, (low, high) in sorted(runs.items()):
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
        yield "| | cases | median error | p90 | in the 80% band | in that of other hardware |"
        yield "|---|--:|--:|--:|--:|--:|"
        for line in group:
            figures = f"{line.count} | {line.median:.1%} | {line.p90:.0%} | {line.held:.0%} | {_share(line)}"
            yield f"| {line.name} | {figures} |"
        yield ""
    yield "### Failures: off by more than half\n"
    yield "| model, weights | hardware, engine | run | predicted / measured |\n|---|---|---|--:|"
    for each in report.failures:
        case, ratio = each.case, each.ratio
        ran = f"{case.run}, batch {case.batch}, {case.prompt or case.depth} tokens"
        yield f"| {case.model.name}, {case.bits:g} bits | {case.device.name}, {case.engine} | {ran} | {1 / ratio:.2f} |"
    yield "\n### Rows left out\n\n| reason | rows |\n|---|--:|"
    for reason, rows in sorted(report.dropped.items(), key=lambda item: -len(item[1])):
        yield f"| {reason} | {len(rows)} |"
    yield f"\nFits or not: {report.fits[0]} of {report.fits[1]} rows that say are predicted right."
