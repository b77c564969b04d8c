"""A real run as a story: the prompt's tokens, every step from the ledger, the alternatives. Owns the gathering.

Times and memory are those of the run itself; FLOPs and bytes are the ledger's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

from twostroke.engine.account import PhaseTotals
from twostroke.engine.ledger import StepRecord
from twostroke.explain.breakdown import OpCost, Steps, by_kind, by_layer, op_costs
from twostroke.explain.crossover import crossover
from twostroke.explain.story import Choice, MemoryUse, ModelFacts, Step, Story, Stroke
from twostroke.explain.tokens import prompt_tokens, token_of
from twostroke.explain.vectors import vectors_of, words_of
from twostroke.explain.what_if import what_if_of
from twostroke.llm.llm import LLM
from twostroke.llm.results import Completion
from twostroke.program.cost import ChunkShape
from twostroke.program.phase import Phase
from twostroke.roofline.bound import attain
from twostroke.roofline.hardware import HardwareSpec
from twostroke.roofline.memory import peak_rss_bytes
from twostroke.roofline.planned_model import PlannedModel
from twostroke.roofline.planner import Scenario
from twostroke.roofline.target import Target

NUM_ALTERNATIVES = 5


@dataclass(frozen=True, slots=True)
class Run:
    """What ran: the prompt (`text` is None where no template was around it) and its answer, with the ledger's record
    of each step. `hardware` has the roofs, `model` is the planner's view of the model; program and bits
    are those that ran."""

    llm: LLM
    model: PlannedModel
    prompt_ids: Sequence[int]
    text: str | None
    completion: Completion
    records: Sequence[StepRecord]
    hardware: HardwareSpec


def story_of(run: Run) -> Story:
    """Everything that there is to say about it."""
    llm, completion = run.llm, run.completion
    tokenizer, executor = llm.tokenizer, llm.running.loaded.executor
    model = replace(run.model, program=executor.program, bits=executor.storage.weight_bits)
    prompt = prompt_tokens(tokenizer, run.prompt_ids, run.text)
    prefill, decode = completion.summary.prefill, completion.summary.decode
    steps = _steps(run.records, run.records[0].started, llm.memory.kv_bytes_per_token)
    generated = [ChunkShape(at, 1, 1, phase=Phase.DECODE) for at in range(len(prompt), len(prompt) + decode.tokens)]
    costs = op_costs(model.program, executor.storage, _prompt_steps(steps))
    decode_costs = op_costs(model.program, executor.storage, {(chunk,): 1.0 for chunk in generated})
    hardware = raised(run.hardware, steps)
    target = Target(hardware.name, "cpu", hardware, llm.memory.available_bytes, None, None, "probed", is_here=True)
    scenario = Scenario(prompt=len(prompt), answer=max(1, len(completion.token_ids)), kv=llm.config.kv)
    return Story(
        source="measured",
        model=facts_of(model, llm.config.kv),
        hardware=hardware.name,
        hardware_source=f"roofs probed on this machine, {llm.threads.num_threads} threads, {llm.isa}",
        engine="twostroke",
        prompt=prompt,
        answer=completion.text,
        finish_reason=completion.finish_reason,
        vectors=vectors_of(llm.path, tokenizer, words_of(prompt)),
        prefill=_stroke(prefill, hardware, costs),
        decode=_stroke(decode, hardware, decode_costs),
        steps=tuple(steps),
        choices=tuple(_choices(run)),
        memory=_memory(llm),
        crossover=crossover(executor.cost, hardware, llm.context, llm.config.max_step_tokens),
        what_if=what_if_of(model, target, scenario),
    )


def facts_of(model: PlannedModel, kv: str) -> ModelFacts:
    """What a model is."""
    config = model.config
    return ModelFacts(
        name=model.name,
        architecture=config.architecture,
        parameters=model.num_parameters,
        layers=config.num_layers,
        dim=config.dim,
        vocabulary=config.vocab_size,
        context=config.context_length,
        experts=config.num_experts,
        weights=model.weights,
        weight_bytes=model.weight_bytes,
        kv=kv,
    )


def _prompt_steps(steps: Sequence[Step]) -> Steps:
    """The chunks in which the prompt was computed; the last gives an output."""
    chunks = [step for step in steps if step.phase is Phase.PREFILL]
    return {(ChunkShape(step.kept_tokens - step.tokens, step.tokens, int(step is chunks[-1])),): 1.0 for step in chunks}


def raised(hardware: HardwareSpec, steps: Sequence[Step]) -> HardwareSpec:
    """The same roofs, but none below what a token reached: a roof is the best that was seen, and a probe may be
    disturbed."""
    reached = max((step.bytes / step.seconds for step in steps if step.phase is Phase.DECODE), default=0.0)
    points = tuple((size, max(rate, reached)) for size, rate in hardware.read_bandwidth)
    return replace(hardware, read_bandwidth=points)


def _stroke(totals: PhaseTotals, hardware: HardwareSpec, costs: list[OpCost]) -> Stroke:
    working_set = (totals.weight_bytes + totals.kv_bytes) / max(1, totals.steps)
    reached = attain(totals.flops, totals.bytes, totals.seconds, working_set_bytes=working_set, hardware=hardware)
    return Stroke(
        tokens=totals.tokens,
        steps=totals.steps,
        seconds=totals.seconds,
        low=None,
        high=None,
        flops=totals.flops,
        weight_bytes=totals.weight_bytes,
        kv_bytes=totals.kv_bytes,
        activation_bytes=totals.activation_bytes,
        roof_flop_s=reached.roof_flop_s,
        roof_byte_s=reached.roof_byte_s,
        bound=reached.bound,
        roof_fraction=reached.roof_fraction,
        by_kind=by_kind(costs),
        by_layer=by_layer(costs),
    )


def _steps(records: Sequence[StepRecord], first: float, bytes_per_token: float) -> list[Step]:
    steps: list[Step] = []
    kept = 0
    for record in records:
        for phase, account in record.phases.items():
            totals = account.totals()
            kept += totals.rows
            steps.append(
                Step(
                    phase=phase,
                    started=record.started - first,
                    seconds=record.seconds,
                    tokens=totals.rows,
                    flops=totals.flops,
                    weight_bytes=totals.weight_bytes,
                    kv_bytes=totals.kv_bytes,
                    activation_bytes=totals.activation_bytes,
                    kept_tokens=kept,
                    kept_bytes=kept * bytes_per_token,
                )
            )
    return steps


def _choices(run: Run) -> list[Choice]:
    tokenizer = run.llm.tokenizer
    return [
        Choice(
            token_of(tokenizer, score.token_id),
            exp(score.logprob),
            tuple((token_of(tokenizer, other), exp(logprob)) for other, logprob in score.alternatives),
        )
        for score in run.completion.logprobs or ()
    ]


def _memory(llm: LLM) -> MemoryUse:
    """What the core allocated, and how long a context one request could have in what was free then."""
    memory, executor = llm.memory, llm.running.loaded.executor
    fixed = memory.weight_bytes + memory.activation_bytes + memory.overhead_bytes
    room = (memory.available_bytes - fixed) // max(1, memory.kv_bytes_per_token)
    return MemoryUse(
        weight_bytes=llm.weight_bytes,
        kv_bytes=executor.kv_pool_bytes,
        kv_tokens=memory.pool_tokens,
        kv_bytes_per_token=memory.kv_bytes_per_token,
        activation_bytes=executor.scratch_bytes,
        overhead_bytes=memory.overhead_bytes,
        capacity_bytes=memory.available_bytes,
        max_context=max(0, min(room, llm.model_config.context_length)),
        peak_bytes=peak_rss_bytes(),
    )
