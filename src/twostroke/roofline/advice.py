"""What limits a plan, and what would change it: sentences with figures. Owns the words; every figure is a plan's."""

from collections.abc import Iterator

from twostroke.roofline.planner import Plan, again

_NARROWER = (("q8_0", 8.5), ("q4_k_m", 4.9), ("q3_k_m", 4.0))
_NOTICEABLE = 1.08  # a change below this is none


def advice(plan: Plan) -> Iterator[str]:
    """Sentences, the most important first."""
    yield from _fitting(plan)
    if plan.model.is_encoder:
        yield "an encoder keeps no KV cache and generates nothing: each request is one pass over all of its tokens"
    else:
        yield from _decode(plan)
        yield from _weights(plan)
        yield from _batch(plan)
        yield from _cache(plan)
    yield from _prefill(plan)
    if plan.target.count > 1:
        yield (
            f"{plan.target.count} devices: figures are for one; split by layers, more devices hold more but do not make"
            " a single answer faster"
        )


def _fitting(plan: Plan) -> Iterator[str]:
    memory, placed = plan.memory, plan.placed
    if placed is not None and plan.scenario.offload is not None:
        outside, seconds = placed.outside_bytes(plan.decode.work), plan.decode.seconds
        experts = f", {placed.hits:.0%} of chosen experts are in memory" if plan.model.is_mixture else ""
        yield (
            f"{_gb(placed.resident_bytes)} of {_gb(plan.model.weight_bytes)} of weights are in memory{experts};"
            f" a token reads {_gb(outside)} from {plan.scenario.offload.tier},"
            f" {seconds.storage / seconds.total:.0%} of its time"
        )
    if memory.fits is None:
        yield "whether it fits is not known: the hardware's memory is not stated (--memory)"
    elif not memory.fits:
        over = memory.total_bytes - (memory.capacity_bytes or 0.0)
        yield f"it does not fit: {_gb(over)} too much; the times below are as if it did"
        for weights, _ in _NARROWER:
            narrower = again(plan, weights=weights)
            if narrower.memory.total_bytes < memory.total_bytes and narrower.memory.fits:
                yield f"{weights} fits: {_gb(narrower.memory.total_bytes)}"
                return
        if plan.max_context and plan.max_context > plan.scenario.prompt // 8:
            yield f"a context of {plan.max_context:,} tokens fits"


def _decode(plan: Plan) -> Iterator[str]:
    seconds = plan.decode.seconds
    parts = {
        "reading weights": seconds.weights + seconds.experts,
        "reading the KV cache": seconds.kv,
        "arithmetic": seconds.compute,
        "starting kernels": seconds.overhead,
        "reading what is not in memory": seconds.storage,
    }
    shares = sorted(parts.items(), key=lambda item: -item[1])
    words = ", ".join(f"{part / seconds.total:.0%} {name}" for name, part in shares if part > 0.02 * seconds.total)
    yield f"decode is {seconds.bound}-bound: a token's time is {words}"


def _weights(plan: Plan) -> Iterator[str]:
    """The widths that change decode, best known first."""
    mean = 8 * plan.model.weight_bytes / plan.model.num_parameters
    found = []
    for weights, bits in _NARROWER[:2]:
        if bits < 0.85 * mean:
            ratio = plan.tpot_s / again(plan, weights=weights).tpot_s
            if ratio > _NOTICEABLE:
                found.append(f"{weights} gives {ratio:.1f}x ({plan.tok_s * ratio:,.0f} tok/s)")
    if found:
        yield f"instead of {plan.model.weights}, {', '.join(found)}"


def _batch(plan: Plan) -> Iterator[str]:
    if plan.scenario.batch > 1:
        alone = again(plan, batch=1)
        more, each = plan.total_tok_s / alone.total_tok_s, plan.tok_s / alone.tok_s
        yield f"batch {plan.scenario.batch} gives {more:.1f}x the tokens of batch 1 in all, each request at {each:.2f}x"
    elif (plan.max_batch or 0) >= 8:
        together = again(plan, batch=8)
        yield (
            f"batch 8 gives {together.total_tok_s / plan.total_tok_s:.1f}x the tokens in all, each request at"
            f" {together.tok_s / plan.tok_s:.2f}x; a second device does not help at batch 1"
        )


def _cache(plan: Plan) -> Iterator[str]:
    kv = plan.memory.kv_bytes
    if plan.scenario.kv in ("f16", "bf16") and kv > 0.15 * plan.memory.total_bytes:
        share = kv / plan.memory.total_bytes
        yield f"the KV cache is {share:.0%} of the memory; q8_0 would make it {_gb(kv * 8.5 / 16)}"


def _prefill(plan: Plan) -> Iterator[str]:
    if plan.prefill is None:
        yield "prefill is not predicted: the hardware's FLOP/s are not published (--tflops)"
        return
    seconds = plan.prefill.seconds
    if seconds.bound == "compute":
        share = seconds.prompt_attention / seconds.total
        long = f", {share:.0%} of it attention over the context" if share > 0.1 else ""
        yield f"prefill is compute-bound{long}: more FLOP/s help, narrower weights do not"
    else:
        tokens = plan.scenario.prompt - plan.scenario.cached
        yield f"prefill is memory-bound: {tokens:,} tokens are too few to keep the arithmetic busy"


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.0f} MB"
