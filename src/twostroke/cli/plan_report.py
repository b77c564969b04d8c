"""A plan for a reader: memory, the two strokes, what limits. Owns the text; the figures are the planner's."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from twostroke.cli.figures import bytes_text, count_text, table
from twostroke.explain.figures import time_text
from twostroke.roofline.advice import advice
from twostroke.roofline.claim import Judgement
from twostroke.roofline.efficiency import PHASES
from twostroke.roofline.fit import Fitting
from twostroke.roofline.planner import Plan, Prediction

_WIDTH = 110


def plan_lines(plan: Plan) -> Iterator[str]:
    """One plan, whole."""
    scenario = plan.scenario
    requests = f"{scenario.batch} requests" if scenario.batch > 1 else "1 request"
    yield f"{plan.model.name}, {weights_text(plan)}, on {plan.target.name} with {engine_text(plan)}"
    tokens = f"{scenario.prompt:,} tokens"
    if not plan.model.is_encoder:
        tokens += f" and an answer of {scenario.answer:,}, KV in {scenario.kv}"
    yield f"predicted for {requests} of {tokens}"
    yield ""
    yield from _memory_lines(plan)
    yield ""
    yield from table([*_phase_rows(plan)], left=2)
    yield ""
    yield "what limits, and what would change it"
    for sentence in advice(plan):
        yield from _wrapped(f"- {sentence}")
    yield ""
    yield from _wrapped(f"hardware: {plan.target.source}")
    yield from _wrapped(f"constants: {plan.efficiency.name}, {plan.efficiency.source}")
    yield from _wrapped(f"ranges: {_ranges_text(plan)}")


def _wrapped(text: str) -> Iterator[str]:
    """Lines of at most 110 characters; addresses stay whole."""
    yield from wrap(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def weights_text(plan: Plan) -> str:
    mean = 8 * plan.model.weight_bytes / plan.model.num_parameters
    return f"{plan.model.weights} ({mean:.3g} bits a weight)"


def engine_text(plan: Plan) -> str:
    return plan.efficiency.name.partition("/")[0]


def _memory_lines(plan: Plan) -> Iterator[str]:
    memory = plan.memory
    by_bits = ", ".join(f"{bytes_text(size)} at {bits:.3g} bits" for bits, size in plan.model.bytes_by_bits().items())
    rows = [(memory.weight_bytes, f"weights: {by_bits}")]
    if memory.host_bytes:
        rows.append((-memory.host_bytes, "of them embeddings, kept in the host's memory"))
    if not plan.model.is_encoder:
        rows.append((memory.kv_bytes, f"KV cache: {_cache_text(plan)}"))
    if memory.state_bytes:
        rows.append((memory.state_bytes, "recurrent state"))
    rows += [(memory.activation_bytes, "activations and scratch"), (memory.overhead_bytes, "the engine itself")]
    rows.append((memory.total_bytes, _verdict(plan)))
    for index, (size, text) in enumerate(rows):
        label, sign = "" if index else "memory", "-" if size < 0 else ""
        yield f"{label:8}{sign + bytes_text(abs(size)):>10}  {text}"


def _ranges_text(plan: Plan) -> str:
    """What the times' ranges are of, phases that differ apart; and of memory, where its speed changed."""
    batch, found = plan.scenario.batch, plan.efficiency
    prefill, decode = (found.band_source(phase, batch) for phase in PHASES[:2])
    if plan.model.is_encoder:
        decode = prefill
    text = decode if prefill == decode or plan.prefill is None else f"of prefill {prefill}; of decode {decode}"
    slow, fast = plan.target.spec.memory_span
    return text if slow == fast else f"{text}; and memory as slow and as fast as it was read in 30 days"


def _cache_text(plan: Plan) -> str:
    """What a token takes, and the windows and latents that make it less than it seems."""
    caches = plan.model.program.caches
    text = f"{bytes_text(plan.memory.kv_bytes_per_token)} a token"
    windowed = [cache for cache in caches if cache.window is not None]
    if windowed:
        text += f", {len(windowed)} of {len(caches)} layers keep their latest {windowed[0].window:,} only"
    return text


def _verdict(plan: Plan) -> str:
    memory, scenario = plan.memory, plan.scenario
    if memory.capacity_bytes is None:
        return "in all"
    fits = "fits" if memory.fits else "does NOT fit"
    text = f"in all; {fits} in {bytes_text(memory.capacity_bytes)}"
    if plan.max_context:
        text += f"; context up to {plan.max_context:,} tokens"
    if plan.max_batch:
        text += f", or {plan.max_batch:,} requests of {scenario.context:,}"
    return text


def _phase_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    scenario, decode = plan.scenario, plan.generated
    yield "", "", "time", "80% of runs", "tokens/s", "bound", "FLOP/byte"
    if plan.prefill is None:
        yield "prefill", "", "?", "", "", "", ""
    else:
        new = scenario.batch * (scenario.prompt - scenario.cached)
        rate = f"{new / plan.prefill.total:,.0f}"
        yield "prefill", f"{new:,} tokens", *_times(plan.prefill, 1.0), rate, *_bound(plan, plan.prefill)
    if decode is None:
        return
    rate = f"{plan.tok_s:,.1f}" if scenario.batch == 1 else f"{plan.tok_s:,.1f} each, {plan.total_tok_s:,.0f} in all"
    yield "decode", "a token", *_times(decode, scenario.tokens_a_step), rate, *_bound(plan, decode)
    if plan.prefill is not None:
        whole = plan.prefill.total + (scenario.answer - 1) * plan.tpot_s
        yield (
            "request",
            f"{scenario.answer:,} tokens",
            time_text(whole),
            "",
            f"{scenario.answer / whole:,.1f}",
            "",
            "",
        )


def _times(found: Prediction, tokens: float) -> tuple[str, str]:
    low, high = found.low / tokens, found.high / tokens
    return time_text(found.total / tokens), f"{time_text(low)} to {time_text(high)}"


def _bound(plan: Plan, found: Prediction) -> tuple[str, str]:
    ridge = "" if plan.ridge_point is None else f" (ridge {plan.ridge_point:,.0f})"
    return found.seconds.bound, f"{found.work.intensity:,.1f}{ridge}"


def sweep_lines(plans: Sequence[Plan]) -> Iterator[str]:
    """Many plans, a line each; columns that are the same in all are said once."""
    first = plans[0]
    yield f"{first.model.name}: predicted"
    yield ""
    rows = [("hardware", "weights", "batch", "context", "memory", "fits", "TTFT", "TPOT", "tok/s", "in all", "bound")]
    for plan in plans:
        ttft = "?" if plan.ttft_s is None else time_text(plan.ttft_s)
        fits = {True: "yes", False: "no", None: "?"}[plan.memory.fits]
        rows.append(
            (
                plan.target.name,
                plan.model.weights,
                f"{plan.scenario.batch:,}",
                f"{plan.scenario.context:,}",
                bytes_text(plan.memory.total_bytes),
                fits,
                ttft,
                *_decode_cells(plan),
            )
        )
    yield from table(rows, left=2)


def _decode_cells(plan: Plan) -> tuple[str, str, str, str]:
    """Nothing for an encoder."""
    if plan.generated is None:
        return "", "", "", "" if plan.prefill is None else plan.prefill.seconds.bound
    bound = plan.generated.seconds.bound
    return time_text(plan.tpot_s), f"{plan.tok_s:,.1f}", f"{plan.total_tok_s:,.0f}", bound


def fit_lines(found: Sequence[Fitting], limit: int) -> Iterator[str]:
    """Models that fit, best first."""
    rows = [("model", "weights", "parameters", "memory", "left", "tok/s", "80% of runs", "TTFT")]
    for each in found[:limit]:
        plan = each.plan
        low, high = (plan.scenario.tokens_a_step / seconds for seconds in (plan.decode.high, plan.decode.low))
        rows.append(
            (
                plan.model.name,
                plan.model.weights,
                count_text(plan.model.num_parameters),
                bytes_text(plan.memory.total_bytes),
                bytes_text(each.headroom_bytes),
                f"{plan.tok_s:,.1f}",
                f"{low:,.0f} to {high:,.0f}",
                "?" if plan.ttft_s is None else time_text(plan.ttft_s),
            )
        )
    yield from table(rows, left=2)
    if len(found) > limit:
        yield f"and {len(found) - limit} smaller ones (--limit)"


def claim_lines(judged: Judgement) -> Iterator[str]:
    """A verdict and why."""
    plan = judged.plan
    what = f"{plan.model.name} in {plan.model.weights} at {judged.claimed_tok_s:g} tok/s on {plan.target.name}"
    yield f"{judged.verdict}: {what}"
    for reason in judged.reasons:
        yield f"  {reason}"
    context = f"{plan.scenario.context:,} tokens of context"
    yield f"  the roofs allow {judged.limit_tok_s:,.1f} tok/s at most, at batch 1 and {context}"
