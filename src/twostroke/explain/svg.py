"""Charts as SVG text. Owns axes, scales and marks; knows nothing of what is drawn. Colours are the page's classes."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480, 290  # narrow, so that text stays readable on a phone
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 16, 46
_MARGIN = 8
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels, linear or logarithmic. `low` < `high`, above 0 where logarithmic."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        share = (self._form(value) - self._form(self.low)) / (self._form(self.high) - self._form(self.low))
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values within: powers of ten, or about five steps of 1, 2 or 5."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**power for power in range(first, last + 1, max(1, (last - first + 1) // 5))]
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [step * index for index in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _form(self, value: float) -> float:
        return math.log10(max(value, 1e-30)) if self.logarithmic else value


@dataclass(frozen=True, slots=True)
class Frame:
    """A chart's two scales and what its axes say."""

    x: Scale
    y: Scale
    x_title: str
    y_title: str
    height: int = HEIGHT

    @classmethod
    def of(
        cls, x: Point, y: Point, titles: tuple[str, str], *, logarithmic: bool = False, height: int = HEIGHT
    ) -> "Frame":
        """Scales over the usual area for ranges of x and y."""
        return cls(
            Scale(*x, LEFT, WIDTH - RIGHT, logarithmic),
            Scale(*y, height - BOTTOM, TOP, logarithmic),
            *titles,
            height,
        )

    def at(self, point: Point) -> Point:
        return self.x(point[0]), self.y(point[1])


def chart(
    frame: Frame,
    marks: Sequence[str],
    label: str,
    text: Callable[[float], str],
    *,
    x_ticks: Mapping[float, str] | None = None,
    y_ticks: bool = True,
    is_dense: bool = False,
) -> str:
    """A whole SVG; `label` is what a screen reader says, `text` writes tick values. `x_ticks` are in place of round
    values; without `y_ticks` the second axis has none. Marks of a dense chart touch and end on whole
    pixels, with no seam."""
    across = {value: text(value) for value in frame.x.ticks()} if x_ticks is None else x_ticks
    up = {value: text(value) for value in frame.y.ticks()} if y_ticks else {}
    body = "".join((*_axes(frame, across, up), *marks))
    crisp = ' shape-rendering="crispEdges"' if is_dense else ""
    opening = f'<svg viewBox="0 0 {WIDTH} {frame.height}" role="img" aria-label="{escape(label, quote=True)}"{crisp}>'
    return f"{opening}{body}</svg>"


def line(frame: Frame, points: Sequence[Point], kind: str) -> str:
    """A polyline of a class."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(frame.at, points))
    return f'<polyline class="{kind}" points="{path}"/>'


def area(frame: Frame, low: Sequence[Point], high: Sequence[Point], kind: str) -> str:
    """What lies between two lines."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(frame.at, [*low, *reversed(high)]))
    return f'<polygon class="{kind}" points="{path}"/>'


def dot(frame: Frame, point: Point, kind: str, title: str) -> str:
    """A point with a tooltip."""
    x, y = frame.at(point)
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{escape(title)}</title></circle>'


def box(frame: Frame, x: Point, y: Point, kind: str, title: str) -> str:
    """A rectangle over ranges of both axes, at least a hair wide and high, with a tooltip."""
    (left, bottom), (right, top) = frame.at((x[0], y[0])), frame.at((x[1], y[1]))
    size = f'width="{max(right - left, 0.4):.2f}" height="{max(bottom - top, 0.4):.2f}"'
    return f'<rect class="{kind}" x="{left:.2f}" y="{top:.2f}" {size}><title>{escape(title)}</title></rect>'


def stacked(parts: Sequence[tuple[str, str, str, float]], limit: float | None, label: str) -> str:
    """Sizes end to end with a legend: (name, class, text, size) each; `limit` is drawn as a dashed line."""
    parts = [part for part in parts if part[3] > 0]
    length = WIDTH - 2 * _MARGIN
    scale = length / max(sum(part[3] for part in parts), limit or 0.0)
    drawn, at = [f'<rect class="free" x="{_MARGIN}" y="16" width="{length}" height="36"/>'], float(_MARGIN)
    for name, kind, text, size in parts:
        place = f'x="{at:.1f}" y="16" width="{size * scale:.1f}" height="36"'
        drawn.append(f'<rect class="{kind}" {place}><title>{escape(f"{name} {text}")}</title></rect>')
        at += size * scale
    if limit:
        x = _MARGIN + limit * scale
        drawn.append(f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="60"/>')
    for index, (name, kind, text, _) in enumerate(parts):
        x, y = _MARGIN + index % 2 * length // 2, 84 + index // 2 * 20
        drawn.append(f'<rect class="{kind}" x="{x}" y="{y - 10}" width="12" height="12"/>')
        drawn.append(f'<text class="note" x="{x + 18}" y="{y}">{escape(f"{name} {text}")}</text>')
    height = 92 + (len(parts) - 1) // 2 * 20
    opening = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label, quote=True)}">'
    return f"{opening}{''.join(drawn)}</svg>"


def words(frame: Frame, point: Point, text: str, *, anchor: str = "start", shift: Point = (8.0, -8.0)) -> str:
    """Text near a point, `shift` pixels away."""
    x, y = frame.at(point)
    return (
        f'<text class="note" x="{x + shift[0]:.1f}" y="{y + shift[1]:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _axes(frame: Frame, across: Mapping[float, str], up: Mapping[float, str]) -> Iterator[str]:
    bottom, left = frame.height - BOTTOM, LEFT
    for value, text in across.items():
        x = frame.x(value)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
        yield f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(text)}</text>'
    for value, text in up.items():
        y = frame.y(value)
        yield f'<line class="grid" x1="{left}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'
    center, middle = (left + WIDTH - RIGHT) / 2, (TOP + bottom) / 2
    yield f'<text class="axis" x="{center}" y="{frame.height - 10}" text-anchor="middle">{escape(frame.x_title)}</text>'
    turned = f'text-anchor="middle" transform="rotate(-90 14 {middle})"'
    yield f'<text class="axis" x="14" y="{middle}" {turned}>{escape(frame.y_title)}</text>'
