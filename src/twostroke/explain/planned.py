"""A plan as a story: the same page, nothing run. Owns which tokens of the answer are shown; figures are the plan's."""

from collections.abc import Mapping

from twostroke.explain.breakdown import Steps, by_kind, by_layer, op_costs
from twostroke.explain.crossover import crossover
from twostroke.explain.run import facts_of
from twostroke.explain.story import MemoryUse, Step, Story, Stroke
from twostroke.explain.what_if import what_if_of
from twostroke.program.cost import ChunkShape, CostModel, Storage
from twostroke.program.phase import Phase
from twostroke.roofline.memory_sum import kept_bytes
from twostroke.roofline.planned_model import KV_BITS
from twostroke.roofline.planner import Plan, Prediction
from twostroke.roofline.step_time import predict
from twostroke.roofline.work import prefill_steps, step_work

_MOST_STEPS = 128  # of the answer's tokens, evenly spread


def planned_story(plan: Plan) -> Story:
    """Everything that there is to say about it, for a batch of 1."""
    scenario, model, target = plan.scenario, plan.model, plan.target
    cost = model.cost(scenario.kv)
    middle = scenario.prompt + scenario.answer // 2
    shapes = prefill_steps(scenario.prompt, 1, plan.efficiency.chunk_tokens)
    prompts: Steps = {shape: float(count) for shape, count in shapes.items()}
    token: Steps = {(ChunkShape(middle, 1, 1, phase=Phase.DECODE),): 1.0}
    return Story(
        source="predicted",
        model=facts_of(model, scenario.kv),
        hardware=target.name,
        hardware_source=target.source,
        engine=plan.efficiency.name.partition("/")[0],
        prompt=(),
        answer="",
        finish_reason=None,
        vectors=None,
        prefill=None if plan.prefill is None else _stroke(plan, plan.prefill, prompts, scenario.prompt),
        decode=_stroke(plan, plan.decode, token, 1),
        steps=tuple(_steps(plan, cost)),
        choices=(),
        memory=_memory(plan),
        crossover=crossover(cost, target.spec, model.config.context_length, plan.efficiency.chunk_tokens),
        what_if=what_if_of(model, target, scenario),
    )


def _stroke(plan: Plan, found: Prediction, steps: Steps, tokens: int) -> Stroke:
    """`steps` are those that the prediction is of; of decode, the one in the middle of the answer."""
    costs = op_costs(plan.model.program, Storage(plan.model.bits, KV_BITS[plan.scenario.kv]), steps)
    parts, spec = by_kind(costs), plan.target.spec
    flops, moved = sum(part.flops for part in parts), sum(part.bytes for part in parts)
    count = sum(steps.values())
    roof_byte_s = spec.bytes_per_s_at(found.work.read_bytes / found.work.steps)
    roof_flop_s = spec.peak_flops if spec.flops else None
    reading, computing = moved / roof_byte_s, 0.0 if roof_flop_s is None else flops / roof_flop_s
    return Stroke(
        tokens=tokens,
        steps=round(count),
        seconds=found.total,
        low=found.low,
        high=found.high,
        flops=flops,
        weight_bytes=sum(part.weight_bytes for part in parts),
        kv_bytes=sum(part.kv_bytes for part in parts),
        activation_bytes=sum(part.activation_bytes for part in parts),
        roof_flop_s=roof_flop_s,
        roof_byte_s=roof_byte_s,
        bound="compute" if computing > reading else "memory",
        roof_fraction=max(reading, computing) / found.total,
        by_kind=parts,
        by_layer=by_layer(costs),
        starting_share=found.seconds.overhead / found.total,
    )


def _steps(plan: Plan, cost: CostModel) -> list[Step]:
    """The prompt as one step, then tokens of the answer."""
    scenario, model = plan.scenario, plan.model
    started = 0.0
    steps = []
    if plan.prefill is not None:
        started = plan.prefill.total
        shapes = prefill_steps(scenario.prompt, 1, plan.efficiency.chunk_tokens)
        steps.append(_step(plan, shapes, cost, (0.0, started), scenario.prompt))
    count = min(scenario.answer - 1, _MOST_STEPS)
    for index in range(count):
        at = scenario.prompt + index * (scenario.answer - 1) // count
        chunk = ChunkShape(at, 1, 1, phase=Phase.DECODE)
        layers = model.config.num_layers
        work = step_work(cost, layers, generated=(chunk,), kinds=plan.efficiency.kinds)
        seconds = predict(work, plan.target.spec, plan.efficiency).total
        when = (started + (at - scenario.prompt) * plan.tpot_s, seconds)
        steps.append(_step(plan, {(chunk,): 1}, cost, when, at + 1))
    return steps


def _step(
    plan: Plan, shapes: Mapping[tuple[ChunkShape, ...], int], cost: CostModel, when: tuple[float, float], kept: int
) -> Step:
    """Steps of these shapes as one, after which `kept` tokens are in the cache; `when` it starts and how long it is."""
    costs = [(cost.step(shape), count) for shape, count in shapes.items()]
    return Step(
        phase=next(iter(shapes))[0].phase,
        started=when[0],
        seconds=when[1],
        tokens=sum(count * sum(chunk.length for chunk in shape) for shape, count in shapes.items()),
        flops=sum(count * each.flops for each, count in costs),
        weight_bytes=sum(count * each.weight_bytes for each, count in costs),
        kv_bytes=sum(count * each.kv_bytes for each, count in costs),
        activation_bytes=sum(count * each.activation_bytes for each, count in costs),
        kept_tokens=kept,
        kept_bytes=kept_bytes(plan.model, plan.scenario.kv, kept),
    )


def _memory(plan: Plan) -> MemoryUse:
    memory, scenario = plan.memory, plan.scenario
    return MemoryUse(
        weight_bytes=memory.weight_bytes - memory.host_bytes,
        kv_bytes=memory.kv_bytes + memory.state_bytes,
        kv_tokens=scenario.context * scenario.batch,
        kv_bytes_per_token=memory.kv_bytes_per_token,
        activation_bytes=memory.activation_bytes,
        overhead_bytes=memory.overhead_bytes,
        capacity_bytes=memory.capacity_bytes,
        max_context=plan.max_context,
        peak_bytes=None,
    )
