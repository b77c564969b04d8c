"""Charts as SVG text: lines, histograms, a timeline of requests. Owns their geometry; colours are the page's classes.

Every chart is 480 units wide, so that its text stays readable where a page is narrow.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from twostroke.bench.record import Record

WIDTH, HEIGHT = 480, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 14, 12, 44
_ROW, _FEWEST_ROWS, _MOST_ROWS, _LEAST = 7, 16, 120, 2.5


@dataclass(frozen=True, slots=True)
class Series:
    """Points in the order they are joined; `style` is a class of the page, each label stands beside its point."""

    name: str
    style: str
    points: tuple[tuple[float, float], ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """From 0 to `most` in what is shown, from `start` to `end` in the picture."""

    most: float
    start: float
    end: float
    is_count: bool = False

    def at(self, value: float) -> str:
        return f"{self.start + (self.end - self.start) * value / self.most:.1f}"

    def ticks(self) -> list[float]:
        """Round values, about five of them: 1, 2 or 5 times a power of ten apart; whole for counts."""
        rough = max(self.most / 5, 1.0 if self.is_count else 0.0)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
        return [step * index for index in range(int(self.most / step * 1.001) + 1)]


def line_chart(title: str, series: Sequence[Series], x_label: str, y_label: str) -> str:
    """Lines over a common x; both axes begin at 0."""
    points = [point for one in series for point in one.points]
    x = Axis(max(x for x, _ in points) * 1.08 or 1.0, _LEFT, WIDTH - _RIGHT)
    y = Axis(max(y for _, y in points) * 1.1 or 1.0, HEIGHT - _BOTTOM, _TOP)
    parts = list(_frame(x, y, x_label, y_label, HEIGHT))
    for one in series:
        path = " ".join(f"{x.at(px)},{y.at(py)}" for px, py in one.points)
        parts.append(f'<polyline class="line {one.style}" points="{path}"/>')
        for index, (px, py) in enumerate(one.points):
            label = one.labels[index] if one.labels else ""
            tip = escape(f"{one.name}, {label}: {_short(py)} at {_short(px)}")
            parts.append(
                f'<circle class="dot {one.style}" cx="{x.at(px)}" cy="{y.at(py)}" r="4"><title>{tip}</title></circle>'
            )
    return _svg(title, HEIGHT, parts)


def histogram(title: str, values: Sequence[float], x_label: str) -> str:
    """Counts of values from 0 to their 99.5th percentile; a rule at the median."""
    found = np.array(values)
    most = float(np.percentile(found, 99.5)) * 1.05 or 1.0
    counts, edges = np.histogram(found[found <= most], bins=32, range=(0.0, most))
    x, y = Axis(most, _LEFT, WIDTH - _RIGHT), Axis(float(max(counts.max(), 1)) * 1.05, HEIGHT - _BOTTOM, _TOP, True)
    parts = list(_frame(x, y, x_label, "count", HEIGHT))
    for count, low, high in zip(counts, edges, edges[1:], strict=False):
        if count:
            width = float(x.at(high)) - float(x.at(low)) - 1
            height = float(y.at(0)) - float(y.at(count))
            tip = f"{count} from {_short(low)} to {_short(high)}"
            box = f'x="{x.at(low)}" y="{y.at(count)}" width="{width:.1f}" height="{height:.1f}"'
            parts.append(f'<rect class="bar" {box}><title>{tip}</title></rect>')
    median = x.at(float(np.median(found)))
    parts.append(f'<line class="rule" x1="{median}" x2="{median}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
    return _svg(title, HEIGHT, parts)


def timeline(title: str, records: Sequence[Record], origin: float) -> str:
    """A row a request in the order they were sent, the first 120: waiting for the first delta, then the stream.
    Those of the warm-up are pale."""
    shown = sorted((record for record in records if record.sent is not None), key=_sent)[:_MOST_ROWS]
    height = _TOP + _BOTTOM + _ROW * max(len(shown), _FEWEST_ROWS)
    x = Axis(max((record.ended or 0.0) - origin for record in shown) * 1.02 or 1.0, _LEFT, WIDTH - _RIGHT)
    y = Axis(max(len(shown), _FEWEST_ROWS), _TOP, height - _BOTTOM, True)
    parts = list(_frame(x, y, "seconds", "request", height))
    for row, record in enumerate(shown):
        first = record.delta_times[0] if record.delta_times else record.ended or _sent(record)
        spans = [("wait", _sent(record), first), ("stream", first, record.ended or first)]
        if not record.succeeded:
            spans = [("failed", _sent(record), max(record.ended or first, _sent(record)))]
        pale = ' opacity="0.45"' if record.is_warmup else ""
        top = float(y.at(row)) + 1
        for style, start, end in spans:
            left, right = float(x.at(start - origin)), float(x.at(end - origin))
            box = f'x="{left:.1f}" y="{top:.1f}" width="{max(right - left, _LEAST):.1f}" height="{_ROW - 2}"'
            parts.append(f'<rect class="{style}"{pale} {box}><title>{escape(_tip(record))}</title></rect>')
    return _svg(title, height, parts)


def num_left_out(records: Sequence[Record]) -> int:
    """How many requests a timeline does not show."""
    return max(0, sum(record.sent is not None for record in records) - _MOST_ROWS)


def _sent(record: Record) -> float:
    return record.sent or 0.0


def _tip(record: Record) -> str:
    if not record.succeeded:
        return f"request {record.conversation}: {record.error or 'stopped'}"
    ttft, e2e = (record.ttft or 0.0) * 1e3, (record.e2e or 0.0) * 1e3
    return f"request {record.conversation}: TTFT {ttft:,.0f} ms, {record.output_tokens} tokens in {e2e:,.0f} ms"


def _frame(x: Axis, y: Axis, x_label: str, y_label: str, height: int) -> Iterator[str]:
    """Grid, ticks and labels."""
    bottom = height - _BOTTOM
    for tick in y.ticks():
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y.at(tick)}" y2="{y.at(tick)}"/>'
        yield f'<text class="tick end" x="{_LEFT - 6}" y="{float(y.at(tick)) + 4:.1f}">{_short(tick)}</text>'
    for tick in x.ticks():
        yield f'<text class="tick mid" x="{x.at(tick)}" y="{bottom + 16}">{_short(tick)}</text>'
    yield f'<text class="label mid" x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{height - 8}">{escape(x_label)}</text>'
    middle = (_TOP + bottom) / 2
    yield f'<text class="label mid" transform="translate(13 {middle}) rotate(-90)">{escape(y_label)}</text>'


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    inner = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">{inner}</svg>'


def _short(value: float) -> str:
    """Up to three digits, thousands as k: 0.05, 12.5, 340, 1.2k."""
    if abs(value) >= 10_000:
        return f"{value / 1000:.3g}k"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
