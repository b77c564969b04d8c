"""The charts of a story. Owns what each shows; axes and marks are `svg`'s, colours the page's."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from twostroke.explain.figures import bytes_text, count_text, rate_text, time_text
from twostroke.explain.story import Choice, MemoryUse, Part, Source, Step, Story, Stroke
from twostroke.explain.svg import Frame, box, chart, dot, line, stacked, words
from twostroke.program.phase import Phase

_FLAT, _LOW, _LOWER = 110, 230, 170  # heights
_SIZES = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))
_COUNTS = (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6))
_MOST_APART = 150  # bars with gaps between them
_OVERLAP = 0.02  # of a bar with the next, beyond what rounding takes from it
_LONGEST = 48  # characters of a token
_LEAST_SHARE = 0.2  # of memory, below which a bar of all of it would show nothing
_ENDS = {"input": "in", "output": "out"}


def timeline(steps: Sequence[Step], source: Source) -> str:
    """Steps over time: prefill wide, a bar a token after it."""
    end = max(step.started + step.seconds for step in steps)
    unit, scale = _time_unit(end)
    frame = Frame.of((0.0, end / scale), (0.0, 1.0), (f"{unit}, {source}", ""), height=_FLAT)
    marks, is_dense = [], len(steps) > _MOST_APART
    for step in steps:
        start, length = step.started / scale, step.seconds / scale
        many = f"{step.tokens:,} tokens" if step.tokens > 1 else "1 token"
        title = f"{step.phase}: {many} in {time_text(step.seconds)}"
        gap = 0.0 if step.phase is Phase.PREFILL or is_dense else 0.18 * length
        marks.append(box(frame, (start, start + length - gap), (0.0, 0.9), str(step.phase), title))
    return chart(frame, marks, "Prefill and decode over time", _tick, y_ticks=False, is_dense=is_dense)


def roofline(prefill: Stroke | None, decode: Stroke) -> str:
    """Both strokes under the roof: FLOP/s reached against FLOPs per byte."""
    strokes = [("decode", decode)] if prefill is None else [("prefill", prefill), ("decode", decode)]
    strokes = [(name, each) for name, each in strokes if each.seconds > 0]
    bandwidth, peak = decode.roof_byte_s, decode.roof_flop_s
    reached = [(each.intensity, each.flops / each.seconds) for _, each in strokes]
    top = peak or max(y for _, y in reached) * 10
    ridge = top / bandwidth
    left, right = min(0.5 * ridge, *(x for x, _ in reached)) / 4, 20 * max(ridge, *(x for x, _ in reached))
    frame = Frame.of(
        (left, right), (min(y for _, y in reached) / 6, 4 * top), ("FLOPs per byte", "FLOP/s"), logarithmic=True
    )
    start = max(left, frame.y.low / bandwidth)
    marks = [line(frame, [(start, start * bandwidth), (ridge, top), (right, top)], "roof")]
    label = f"{rate_text(bandwidth, 'B/s')}, {rate_text(peak, 'FLOP/s')}" if peak else rate_text(bandwidth, "B/s")
    marks.append(words(frame, (right, top), label, anchor="end", shift=(0.0, -8.0)))
    for (name, stroke), at in zip(strokes, reached, strict=True):
        limit = min(top, at[0] * bandwidth)
        marks.append(line(frame, [at, (at[0], limit)], "reach"))
        marks.append(dot(frame, at, name, f"{name}: {rate_text(at[1], 'FLOP/s')} at {at[0]:.3g} FLOPs per byte"))
        share = "" if stroke.roof_fraction is None else f" {stroke.roof_fraction:.0%}"
        marks.append(words(frame, at, name + share, shift=(9.0, 15.0)))
    return chart(frame, marks, "Roofline with prefill and decode", count_text)


def layers(parts: Sequence[Part], what: str) -> str:
    """FLOPs or bytes ("flops", "bytes") of each layer."""
    values = [getattr(part, what) for part in parts]
    unit, scale = _count_unit(max(values)) if what == "flops" else _size_unit(max(values))
    frame = Frame.of((0.0, len(parts)), (0.0, 1.1 * max(values) / scale), ("layer", unit), height=_LOWER)
    text = count_text if what == "flops" else bytes_text
    marks = [
        box(frame, (at + 0.1, at + 0.9), (0.0, value / scale), "prefill", f"{_layer(part.name)}: {text(value)}")
        for at, (part, value) in enumerate(zip(parts, values, strict=True))
        if value
    ]
    inner = [index for index, part in enumerate(parts) if part.name.isdecimal()]
    every = max(1, len(inner) // 6)
    names = {index + 0.5: parts[index].name for index in inner[every // 2 :: every]}
    names |= {at + 0.5: _ENDS[part.name] for at, part in enumerate(parts) if part.name in _ENDS}
    return chart(frame, marks, f"{unit} of each layer", _tick, x_ticks=names)


def token_times(steps: Sequence[Step], decode: Stroke, texts: Sequence[str]) -> str:
    """A bar a token, and the time that its bytes take at the roof."""
    unit, scale = _time_unit(_most([step.seconds for step in steps]))
    times = [step.seconds / scale for step in steps]
    floors = [step.bytes / decode.roof_byte_s / scale for step in steps]
    most = 1.15 * max(_most(times), *floors)
    frame = Frame.of((0.0, len(steps)), (0.0, most), ("token", unit), height=_LOW)
    marks = []
    for at, (step, time, floor) in enumerate(zip(steps, times, floors, strict=True)):
        rate = rate_text(step.bytes / step.seconds, "B/s")
        which = f"token {at + 2}{_quoted(texts, at + 1)}"
        title = f"{which}: {time_text(step.seconds)}, {rate}, {floor / time:.0%} of the roof"
        marks.append(box(frame, _span(at, len(steps)), (0.0, min(time, most)), "decode", title))
    marks.append(line(frame, [(at + half, floor) for at, floor in enumerate(floors) for half in (0.0, 1.0)], "roof"))
    return chart(frame, marks, "Time of each token, and the least its bytes allow", _tick, **_places(steps))


def token_bytes(steps: Sequence[Step], texts: Sequence[str]) -> str:
    """What each token read: weights below, the KV cache on them, activations on top."""
    unit, scale = _size_unit(max(step.bytes for step in steps))
    most = 1.15 * max(step.bytes for step in steps) / scale
    frame = Frame.of((0.0, len(steps)), (0.0, most), ("token", unit), height=_LOW)
    marks = []
    for at, step in enumerate(steps):
        low = 0.0
        for name, kind, size in (
            ("weights", "weights", step.weight_bytes),
            ("KV cache", "kv", step.kv_bytes),
            ("activations", "other", step.activation_bytes),
        ):
            title = f"token {at + 2}{_quoted(texts, at + 1)}: {name} {bytes_text(size)}"
            high = low + size / scale
            marks.append(box(frame, _span(at, len(steps)), (low, high), kind, title))
            low = high
    return chart(frame, marks, "Bytes that each token moved", _tick, **_places(steps))


def cache_growth(steps: Sequence[Step]) -> str:
    """The KV cache after each step: a jump for the prompt, then token by token."""
    unit, scale = _size_unit(steps[-1].kept_bytes)
    most = 1.15 * max(step.kept_bytes for step in steps) / scale
    frame = Frame.of((0.0, len(steps)), (0.0, most), ("step", unit), height=_LOW)
    marks = []
    for at, step in enumerate(steps):
        title = f"{step.kept_tokens:,} tokens: {bytes_text(step.kept_bytes)}"
        kind = "prefill" if step.phase is Phase.PREFILL else "kv"
        marks.append(box(frame, _span(at, len(steps)), (0.0, step.kept_bytes / scale), kind, title))
    return chart(frame, marks, "The KV cache after each step", _tick, **_places(steps))


def memory_bar(memory: MemoryUse) -> str:
    """The terms of the sum against what there is."""
    parts = (
        ("weights", "weights", memory.weight_bytes),
        ("KV cache", "kv", memory.kv_bytes),
        ("activations", "other", memory.activation_bytes),
        ("engine, about", "engine", memory.overhead_bytes),
    )
    rows = [(name, kind, bytes_text(size), size) for name, kind, size in parts]
    return stacked(rows, memory.capacity_bytes if shows_limit(memory) else None, "Memory by use")


def shows_limit(memory: MemoryUse) -> bool:
    """Whether what there is fits in the picture: beside a great deal of it, the parts would not be seen."""
    return memory.capacity_bytes is not None and memory.total_bytes > _LEAST_SHARE * memory.capacity_bytes


def strip(values: Sequence[float]) -> str:
    """Numbers as a row of cells: sign by colour, size by strength."""
    most = max(abs(value) for value in values) or 1.0
    cells = "".join(
        f'<rect class="{"plus" if value > 0 else "minus"}" x="{4 * at}" width="4" height="12"'
        f' opacity="{abs(value) / most:.2f}"/>'
        for at, value in enumerate(values)
    )
    box_of = f'viewBox="0 0 {4 * len(values)} 12" preserveAspectRatio="none"'
    return f'<svg class="strip" {box_of} aria-hidden="true">{cells}</svg>'


def texts_of(story: Story) -> list[str]:
    """The answer's tokens, for tooltips."""
    return [visible(choice.token.text) for choice in story.choices]


def visible(text: str) -> str:
    """A token's text with its spaces and line ends shown; the beginning of a very long one."""
    if len(text) > _LONGEST:
        return visible(text[: _LONGEST - 1]) + "…"
    return text.replace(" ", "·").replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍") or "∅"


def likeliest(choice: Choice) -> bool:
    """Whether the token taken was the likeliest one."""
    return not choice.alternatives or choice.alternatives[0][0].id == choice.token.id


def _span(at: int, num: int) -> tuple[float, float]:
    """Where the bar of a place begins and ends; where there are many they touch, since no gap could be seen."""
    gap = 0.1 if num <= _MOST_APART else -_OVERLAP
    return at + gap, at + 1 - gap


def _places(steps: Sequence[Step]) -> dict[str, Any]:
    """How `chart` is to show an axis of whole numbers."""
    sizes = (digit * 10**power for power in count() for digit in (1, 2, 5))
    every = next(size for size in sizes if 6 * size >= len(steps))
    ticks = {float(at): f"{at:,}" for at in range(0, len(steps) + 1, every)}
    return {"x_ticks": ticks, "is_dense": len(steps) > _MOST_APART}


def _quoted(texts: Sequence[str], at: int) -> str:
    return f" “{texts[at]}”" if at < len(texts) else ""


def _layer(name: str) -> str:
    return f"layer {name}" if name.isdecimal() else name


def _most(times: Sequence[float]) -> float:
    """The largest value that is not an outlier beyond four times the median."""
    middle = sorted(times)[len(times) // 2]
    return max(time for time in times if time <= 4 * middle)


def _time_unit(most: float) -> tuple[str, float]:
    """An axis' unit and its size in seconds."""
    return ("seconds", 1.0) if most >= 10 else ("milliseconds", 1e-3)


def _size_unit(most: float) -> tuple[str, float]:
    return next(((unit, size) for unit, size in _SIZES if most >= size), _SIZES[-1])


def _count_unit(most: float) -> tuple[str, float]:
    return next(((unit, size) for unit, size in _COUNTS if most >= size), _COUNTS[-1])


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
