"""Charts as SVG text. Owns axes, scales and marks; knows nothing of what is drawn. Colours are the page's classes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480, 290  # narrow, so that text stays readable on a phone
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 16, 46
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
        """Round values within: powers of ten, or about six steps of 1, 2 or 5."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**power for power in range(first, last + 1, max(1, (last - first + 1) // 7))]
        rough = (self.high - self.low) / 6
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

    @classmethod
    def of(cls, x: Point, y: Point, titles: tuple[str, str], *, logarithmic: bool = False) -> "Frame":
        """Scales over the usual area for ranges of x and y."""
        return cls(
            Scale(*x, LEFT, WIDTH - RIGHT, logarithmic),
            Scale(*y, HEIGHT - BOTTOM, TOP, logarithmic),
            *titles,
        )

    def at(self, point: Point) -> Point:
        return self.x(point[0]), self.y(point[1])


def chart(frame: Frame, marks: Sequence[str], label: str, text: Callable[[float], str]) -> str:
    """A whole SVG; `label` is what a screen reader says, `text` writes tick values."""
    body = "".join((*_axes(frame, text), *marks))
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label, quote=True)}">{body}</svg>'


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


def words(frame: Frame, point: Point, text: str, *, anchor: str = "start", shift: Point = (8.0, -8.0)) -> str:
    """Text near a point, `shift` pixels away."""
    x, y = frame.at(point)
    return (
        f'<text class="note" x="{x + shift[0]:.1f}" y="{y + shift[1]:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _axes(frame: Frame, text: Callable[[float], str]) -> Iterator[str]:
    bottom, left = HEIGHT - BOTTOM, LEFT
    for value in frame.x.ticks():
        x = frame.x(value)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
        yield f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(text(value))}</text>'
    for value in frame.y.ticks():
        y = frame.y(value)
        yield f'<line class="grid" x1="{left}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(text(value))}</text>'
    across, middle = (left + WIDTH - RIGHT) / 2, (TOP + bottom) / 2
    yield f'<text class="axis" x="{across}" y="{HEIGHT - 10}" text-anchor="middle">{escape(frame.x_title)}</text>'
    turned = f'text-anchor="middle" transform="rotate(-90 14 {middle})"'
    yield f'<text class="axis" x="14" y="{middle}" {turned}>{escape(frame.y_title)}</text>'
