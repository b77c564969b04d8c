"""A plan drawn as one HTML page without scripts or anything from elsewhere. Owns the page and its three charts; style
and marks are those of `explain`.
"""

from collections.abc import Iterator, Sequence
from html import escape

from twostroke.cli.figures import bytes_text, count_text
from twostroke.cli.plan_report import engine_text, plan_lines, sweep_lines, weights_text
from twostroke.explain.figures import rate_text
from twostroke.explain.style import page_style
from twostroke.explain.svg import Frame, area, chart, dot, line, stacked, words
from twostroke.roofline.planner import Plan, Prediction, again

_BATCHES = (1, 2, 4, 8, 16, 32, 64)


def page(plans: Sequence[Plan]) -> str:
    """The page of these plans as text; the first is drawn in full."""
    plan = plans[0]
    title = f"{plan.model.name} on {plan.target.name}"
    body = "\n".join(_sections(plans))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{page_style()}</style></head>\n'
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n</body></html>\n"
    )


def _sections(plans: Sequence[Plan]) -> Iterator[str]:
    plan, scenario = plans[0], plans[0].scenario
    yield (
        f"<p>Predicted, not measured: {escape(weights_text(plan))}, {escape(engine_text(plan))}, prompt"
        f" {scenario.prompt:,} and answer {scenario.answer:,} tokens, batch {scenario.batch}.</p>"
    )
    if plan.prefill is not None:
        yield "<h2>The two strokes under the roof</h2>"
        yield "<p>Left of the ridge memory limits, right of it arithmetic. Batching moves decode to the right.</p>"
        yield roofline_chart(plan)
    yield f"<h2>Memory</h2><p>{escape(_memory_words(plan))}</p>{memory_chart(plan)}"
    yield "<h2>Latency against throughput</h2>"
    yield "<p>Each point is a batch; the band holds 80% of measurements of this kind.</p>"
    yield throughput_chart(plan)
    lines = plan_lines(plan) if len(plans) == 1 else sweep_lines(plans)
    yield f'<h2>In figures</h2><pre tabindex="0">{escape(chr(10).join(lines))}</pre>'


def roofline_chart(plan: Plan) -> str:
    """FLOP/s against FLOPs a byte: the roof, prefill, and decode at growing batch."""
    spec = plan.target.spec
    bandwidth, peak = spec.bytes_per_s_at(plan.decode.work.read_bytes), spec.peak_flops
    batches = [again(plan, batch=batch) for batch in _BATCHES]
    strokes = [_stroke(each.decode) for each in batches]
    prefill = [] if plan.prefill is None else [_stroke(plan.prefill)]
    every = [*strokes, *prefill]
    right = 4 * max(*(x for x, _ in every), peak / bandwidth)
    left = min(0.3, *(x / 2 for x, _ in every))
    top, bottom = 3 * max(peak, *(y for _, y in every)), min(y for _, y in every) / 5
    frame = Frame.of((left, right), (bottom, top), ("FLOPs per byte read", "FLOP/s"), logarithmic=True)
    ridge = peak / bandwidth
    start = max(left, bottom / bandwidth)
    marks = [
        line(frame, [(start, start * bandwidth), (ridge, peak), (right, peak)], "roof"),
        words(frame, (right, peak), _roofs(bandwidth, peak), anchor="end", shift=(0.0, -8.0)),
        line(frame, strokes, "decode-line"),
        *(dot(frame, at, "decode", f"decode, batch {batch}") for at, batch in zip(strokes, _BATCHES, strict=True)),
        words(frame, strokes[0], "decode, batch 1", shift=(8.0, 14.0)),
        words(frame, strokes[-1], f"batch {_BATCHES[-1]}", shift=(8.0, 14.0)),
    ]
    for at in prefill:
        marks += [dot(frame, at, "prefill", "prefill"), words(frame, at, "prefill", anchor="end", shift=(-8.0, 14.0))]
    return chart(frame, marks, "Roofline with decode and prefill", count_text)


def _stroke(found: Prediction) -> tuple[float, float]:
    return found.work.intensity, found.work.flops / found.total


def _roofs(bandwidth: float, peak: float) -> str:
    return f"{rate_text(bandwidth, 'B/s')}, {rate_text(peak, 'FLOP/s')}"


def memory_chart(plan: Plan) -> str:
    """The terms of the sum end to end, and the memory there is."""
    memory = plan.memory
    parts = (
        ("weights", "weights", memory.weight_bytes - memory.host_bytes),
        ("KV cache", "kv", memory.kv_bytes),
        ("state", "state", memory.state_bytes),
        ("activations", "other", memory.activation_bytes),
        ("engine", "engine", memory.overhead_bytes),
    )
    rows = [(name, kind, bytes_text(size), size) for name, kind, size in parts]
    return stacked(rows, memory.capacity_bytes, "Memory by use")


def throughput_chart(plan: Plan) -> str:
    """Seconds a token against tokens per second of the whole batch."""
    plans = [again(plan, batch=batch) for batch in _BATCHES]
    tokens = plan.scenario.tokens_a_step
    points = [(each.total_tok_s, 1e3 * each.tpot_s) for each in plans]
    low = [(x, 1e3 * each.decode.low / tokens) for (x, _), each in zip(points, plans, strict=True)]
    high = [(x, 1e3 * each.decode.high / tokens) for (x, _), each in zip(points, plans, strict=True)]
    frame = Frame.of(
        (0.0, 1.1 * points[-1][0] if points[-1][0] > points[0][0] else 1.1 * max(x for x, _ in points)),
        (0.0, 1.08 * max(y for _, y in high)),
        ("tokens per second, all requests together", "milliseconds a token"),
    )
    marks = [area(frame, low, high, "band"), line(frame, points, "decode-line")]
    for at, batch, each in zip(points, _BATCHES, plans, strict=True):
        fits = "" if each.memory.fits is not False else ", does not fit"
        marks.append(dot(frame, at, "decode", f"batch {batch}: {at[1]:.3g} ms a token{fits}"))
        marks.append(words(frame, at, f"{batch}{' *' if fits else ''}", anchor="middle", shift=(0.0, -10.0)))
    note = "<p>* does not fit in the memory</p>" if any(each.memory.fits is False for each in plans) else ""
    return chart(frame, marks, "Time a token against tokens per second as the batch grows", _tick) + note


def _tick(value: float) -> str:
    return f"{value:g}" if value >= 1 or value == 0 else f"{value:.3g}"


def _memory_words(plan: Plan) -> str:
    memory = plan.memory
    if memory.capacity_bytes is None:
        return f"{bytes_text(memory.total_bytes)} in all; the hardware's memory is not known."
    verb = "fit in" if memory.fits else "do not fit in"
    return f"{bytes_text(memory.total_bytes)} {verb} {bytes_text(memory.capacity_bytes)}, the dashed line."
