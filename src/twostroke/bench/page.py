"""A load test as one HTML file that needs nothing else. Owns what is on the page; its form is `page.html`'s, the charts
are `charts.py`'s.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from jinja2 import Environment

from twostroke.bench.charts import Series, histogram, line_chart, num_left_out, timeline
from twostroke.bench.load_test import LoadTest
from twostroke.bench.metrics import Figures, Spread
from twostroke.bench.record import DEFINITIONS
from twostroke.bench.report import report_of
from twostroke.bench.units import rate_text, time_text

if TYPE_CHECKING:
    from twostroke.bench.expectation import Expectation

_METRICS = (
    ("TTFT", "ttft"),
    ("first content", "first_content"),
    ("TPOT", "tpot"),
    ("inter-token", "itl"),
    ("end to end", "e2e"),
)
_COLUMNS = ("mean", "p50", "p90", "p95", "p99", "min", "max")
_MILLISECONDS = 1e3


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its words; `legend` has pairs of a style and what it stands for."""

    title: str
    svg: str
    legend: tuple[tuple[str, str], ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class StagePart:
    """One stage on the page."""

    figures: Figures
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    charts: tuple[Chart, ...]
    expected: "Expectation | None"


def page_of(test: LoadTest) -> str:
    """The whole page."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(resources.files(__package__).joinpath("page.html").read_text("utf-8"))
    return template.render(
        test=test,
        report=report_of(test),
        columns=_COLUMNS,
        sweep=tuple(_sweep(test)),
        stages=tuple(map(_stage, test.stages, test.expected)),
        definitions=tuple(
            (dict(_LABELS).get(name, name.replace("_", " ")), text) for name, text in DEFINITIONS.items()
        ),
        time=time_text,
        rate=rate_text,
    )


_LABELS = tuple((name, label) for label, name in _METRICS)


def _sweep(test: LoadTest) -> Iterator[Chart]:
    """Latency against throughput, where there are several loads that gave any."""
    found = [figures for figures in test.stages if figures.ttft is not None]
    if len(found) < 2:
        return
    for label, name in (("TTFT", "ttft"), ("TPOT", "tpot")):
        series = tuple(
            _series(found, f"{label} {percentile}", style, name, percentile)
            for style, percentile in (("one", "p50"), ("two", "p99"))
        )
        predicted = tuple(
            (figures.output_tokens_per_second, value * _MILLISECONDS)
            for figures, expected in zip(test.stages, test.expected, strict=True)
            if expected is not None and figures.ttft is not None and (value := getattr(expected, name)) is not None
        )
        if predicted:
            series += (Series(f"predicted {label}{' alone' * (name == 'ttft')}", "three", predicted),)
        if all(one.points for one in series):
            title = f"{label} against throughput as the load rises"
            svg = line_chart(title, series, "output tokens a second", "milliseconds")
            yield Chart(title, svg, tuple((one.style, one.name) for one in series))


def _series(found: list[Figures], label: str, style: str, name: str, percentile: str) -> Series:
    known = [(figures, spread) for figures in found if (spread := getattr(figures, name)) is not None]
    points = tuple(
        (figures.output_tokens_per_second, getattr(spread, percentile) * _MILLISECONDS) for figures, spread in known
    )
    return Series(label, style, points, tuple(figures.run.stage.name for figures, _ in known))


def _stage(figures: Figures, expected: "Expectation | None") -> StagePart:
    return StagePart(figures, tuple(_rows(figures)), tuple(_charts(figures)), expected)


def _rows(figures: Figures) -> Iterator[tuple[str, tuple[str, ...]]]:
    def cells(spread: Spread, text: Callable[[float], str]) -> tuple[str, ...]:
        return tuple(text(getattr(spread, column)) for column in _COLUMNS)

    for label, name in _METRICS:
        spread: Spread | None = getattr(figures, name)
        if spread is not None and (name != "first_content" or spread != figures.ttft):
            yield label, cells(spread, time_text)
    for label, spread in (("prompt tokens", figures.prompt_size), ("output tokens", figures.output_size)):
        if spread is not None:
            yield label, cells(spread, lambda value: f"{value:,.0f}")


def _charts(figures: Figures) -> Iterator[Chart]:
    good = [record for record in figures.run.measured if record.succeeded]
    values: dict[str, list[float | None]] = {
        "TTFT": [record.ttft for record in good],
        "TPOT": [record.tpot for record in good],
        "inter-token": [gap for record in good for gap in record.gaps],
    }
    for label, found in values.items():
        known = [value * _MILLISECONDS for value in found if value is not None]
        if known:
            title = f"{label} of {figures.run.stage.name}"
            yield Chart(label, histogram(title, known, "milliseconds"), (("rule", "median"),))
    records = figures.run.records
    sent = [record.sent for record in records if record.sent is not None]
    if sent:
        left_out = num_left_out(records)
        note = f"The first {len(sent) - left_out} of {len(sent)} requests. " if left_out else ""
        note += "Pale: warm-up, not measured." if any(record.is_warmup for record in records) else ""
        legend = (("wait", "until the first delta"), ("stream", "until the end"), ("failed", "failed or stopped"))
        title = f"requests of {figures.run.stage.name} over time"
        yield Chart("Requests over time", timeline(title, records, min(sent)), legend, note)
