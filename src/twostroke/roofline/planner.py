"""The planner: memory, time to the first token, time a token and their bounds, for a model on hardware. Owns the plan.

Nothing is run. Bytes and FLOPs are those of the program that would run, memory is `memory_sum`'s, time is `step_time`'s
sum with the constants of `efficiency`; every prediction has a low and a high end, between which 80% of
measurements of its kind lay (`Efficiency.band`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from twostroke.errors import ConfigError, ContextLengthError, UnsupportedModelError
from twostroke.program.cost import ChunkShape, CostModel
from twostroke.roofline.efficiency import PHASES, Efficiency, default_engine, find_efficiency
from twostroke.roofline.memory_sum import MemorySum, Room, max_batch, max_context, memory_sum
from twostroke.roofline.offload import Offload, Split, resident, split
from twostroke.roofline.planned_model import KV_BITS, PlannedModel
from twostroke.roofline.step_time import Seconds, arithmetic_peak, predict
from twostroke.roofline.target import Target
from twostroke.roofline.work import Work, prefill_steps, step_work

_CONSTANTS = (
    *("step_s", "layer_s", "request_s", "weights", "experts", "kv", "generated", "tiled", "prompt", "expanded"),
    *("attention", "prompt_attention", "activations", "overlap", "chunk_tokens"),
)
_GEN_POINTS = 4  # contexts at which an answer's tokens are timed


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is to be run.

    batch     requests at once, each of `prompt` tokens and `answer` more, none for an encoder; `cached` tokens of each
              prompt are at hand
    kv        type of the cache
    engine    None for the usual one on the hardware
    drafted, accepted   tokens guessed ahead a step, and the chance that each is right: speculation
    offload   where weights lie that do not fit; None: they must fit
    """

    prompt: int = 512
    answer: int = 256
    batch: int = 1
    kv: str = "f16"
    engine: str | None = None
    cached: int = 0
    drafted: int = 0
    accepted: float = 0.0
    offload: Offload | None = None

    def __post_init__(self) -> None:
        for name, least in (("prompt", 1), ("answer", 0), ("batch", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.kv not in KV_BITS:
            raise ConfigError(f"kv must be one of {', '.join(KV_BITS)}, not {self.kv!r}")
        if not 0 <= self.cached < self.prompt:
            raise ConfigError(f"cached must be from 0 to under the prompt's {self.prompt} tokens, not {self.cached}")

    @property
    def context(self) -> int:
        """Tokens of a request at its end."""
        return self.prompt + self.answer

    @property
    def tokens_a_step(self) -> float:
        """Expected tokens of a request that a decode step gives: 1 without speculation, else those accepted up to the
        first that is wrong, and the one that replaces it (Leviathan et al. 2023)."""
        rate, count = min(self.accepted, 0.999999), self.drafted
        return float((1 - rate ** (count + 1)) / (1 - rate)) if count else 1.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """A phase: its work, where its seconds go, and between what bounds 80% of such measurements lay.

    `steps` of prefill are all of it; decode is one step of `tokens` in the mean over the answer.
    """

    work: Work
    seconds: Seconds
    low: float
    high: float

    @property
    def total(self) -> float:
        return self.seconds.total


@dataclass(frozen=True)
class Plan:
    """A model on hardware: what it takes and how fast it would be."""

    model: PlannedModel
    target: Target
    scenario: Scenario
    efficiency: Efficiency
    room: Room
    memory: MemorySum
    placed: Split | None  # of weights, where some lie outside the memory
    prefill: Prediction | None  # None where the hardware's FLOP/s are not known
    generated: Prediction | None  # None for an encoder

    @property
    def decode(self) -> Prediction:
        """Raises UnsupportedModelError for an encoder."""
        if self.generated is None:
            raise UnsupportedModelError(f"{self.model.name} is an encoder: it generates nothing")
        return self.generated

    @cached_property
    def max_context(self) -> int | None:
        """The longest context for which the batch fits, 0 for none; None where the memory is not known."""
        return max_context(self.model, self.room, batch=self.scenario.batch, kv=self.scenario.kv)

    @cached_property
    def max_batch(self) -> int | None:
        """The most requests of the scenario's context that fit together; None for an encoder: one at a time."""
        if self.model.is_encoder:
            return None
        return max_batch(self.model, self.room, context=self.scenario.context, kv=self.scenario.kv)

    @property
    def ttft_s(self) -> float | None:
        """Seconds to the first token of the last request of the batch."""
        return None if self.prefill is None else self.prefill.total

    @property
    def tpot_s(self) -> float:
        """Seconds a token of one request."""
        return self.decode.total / self.scenario.tokens_a_step

    @property
    def tok_s(self) -> float:
        """Tokens per second of one request."""
        return 1 / self.tpot_s

    @property
    def total_tok_s(self) -> float:
        """Tokens per second of the batch."""
        return self.scenario.batch / self.tpot_s

    @property
    def ridge_point(self) -> float | None:
        """FLOPs a byte above which 16-bit arithmetic is the limit; None where its peak is not known."""
        spec = self.target.spec
        phase = self.generated or self.prefill
        return spec.ridge_point(phase.work.read_bytes) if spec.flops and phase is not None else None


def make_plan(model: PlannedModel, target: Target, scenario: Scenario) -> Plan:
    """Predict; of an encoder, which answers nothing, the prompts only.

    Raises ContextLengthError where prompt and answer exceed the model's context, ConfigError for an engine that nothing
    is known of, or for no answer of another model.
    """
    if model.is_encoder:
        scenario = replace(scenario, answer=0, cached=0, drafted=0)
    elif not scenario.answer:
        raise ConfigError("answer must be at least 1, not 0")
    if scenario.context > model.config.context_length:
        raise ContextLengthError(
            f"{model.name}: prompt {scenario.prompt} + answer {scenario.answer} exceed its context of"
            f" {model.config.context_length} tokens"
        )
    engine = scenario.engine or usual_engine(target)
    efficiency = find_efficiency(engine, target.kind, model.weight_mix)
    room = room_of(target, engine, efficiency)
    memory = memory_sum(model, room, context=scenario.context, batch=scenario.batch, kv=scenario.kv)
    placed = split(model, memory, scenario.offload) if scenario.offload is not None and not memory.fits else None
    cost = model.cost(scenario.kv)
    prefill = _prefill(cost, model, target, scenario, efficiency) if target.spec.flops else None
    decode = None if model.is_encoder else _decode(cost, model, target, scenario, efficiency)
    if placed is not None and scenario.offload is not None:
        memory, byte_s = resident(memory, placed), scenario.offload.byte_s
        prefill, decode = (each and _slowed(each, placed, byte_s) for each in (prefill, decode))
    return Plan(
        model=model,
        target=target,
        scenario=scenario,
        efficiency=efficiency,
        room=room,
        memory=memory,
        placed=placed,
        prefill=prefill,
        generated=decode,
    )


def usual_engine(target: Target) -> str:
    """The engine that a plan assumes where none is named: this one on this machine."""
    return "twostroke" if target.is_here else default_engine(target.kind)


def room_of(target: Target, engine: str, efficiency: Efficiency) -> Room:
    """The memory of hardware as an engine uses it."""
    threads = target.spec.num_threads or 1
    return Room(engine, target.kind, target.memory_bytes, efficiency.chunk_tokens, threads)


def again(plan: Plan, **changes: Any) -> Plan:
    """The same plan with another scenario, format (`weights`) or hardware (`target`)."""
    model, target = plan.model, changes.pop("target", plan.target)
    if (weights := changes.pop("weights", None)) is not None:
        model = model.in_format(weights)
    return make_plan(model, target, replace(plan.scenario, **changes))


def _prefill(cost: CostModel, model: PlannedModel, target: Target, scenario: Scenario, found: Efficiency) -> Prediction:
    total, layers = Work(), model.config.num_layers
    new = scenario.prompt - scenario.cached
    chunk = max(found.chunk_tokens, new) if model.is_encoder else found.chunk_tokens  # rows that see each other
    for shapes, count in prefill_steps(new, scenario.batch, chunk, scenario.cached).items():
        total += step_work(cost, layers, prompts=shapes).times(count)
    return _predicted(total, target, found, found.band("prefill", scenario.batch))


def _decode(cost: CostModel, model: PlannedModel, target: Target, scenario: Scenario, found: Efficiency) -> Prediction:
    total, rows = Work(), 1 + scenario.drafted
    points = min(_GEN_POINTS, scenario.answer)
    for i in range(points):
        at = scenario.prompt + int(scenario.answer * (i + 0.5) / points)
        chunks = (ChunkShape(at, rows, rows),) * scenario.batch
        step = step_work(cost, model.config.num_layers, generated=chunks, kinds=found.kinds)
        total += step.times(1 / points)
    return _predicted(total, target, found, found.band("decode", scenario.batch))


def _predicted(work: Work, target: Target, found: Efficiency, band: tuple[float, float]) -> Prediction:
    """Between the band's ends, memory being as fast and as slow as it was seen; but never faster than the roofs allow:
    a step that fills them has no faster end."""
    spec = target.spec
    slow, fast = spec.memory_span
    floor = max(
        work.read_bytes / (fast * spec.bytes_per_s_at(work.read_bytes / work.steps)),
        work.flops / arithmetic_peak(spec, found.prompt_on),
    )
    low, high = (factor * predict(work, spec, found, at).total for factor, at in zip(band, (fast, slow), strict=True))
    return Prediction(work, predict(work, spec, found), max(floor, low), high)


def _slowed(found: Prediction, placed: Split, byte_s: float) -> Prediction:
    """The same phase with what it reads from outside the memory."""
    storage = placed.outside_bytes(found.work) / byte_s
    seconds = replace(found.seconds, storage=storage)
    return replace(found, seconds=seconds, low=found.low + storage, high=found.high + storage)


def inputs_of(plan: Plan) -> Mapping[str, dict[str, Any]]:
    """Every constant that a plan used, with its source."""
    spec, found = plan.target.spec, plan.efficiency
    main = plan.generated or plan.prefill
    read = plan.model.weight_bytes if main is None else main.work.read_bytes / main.work.steps
    named: dict[str, tuple[Any, str]] = {
        "model_facts": (plan.model.num_parameters, plan.model.source),
        "weight_format": (plan.model.weights, "weight_formats.toml"),
        "bandwidth_byte_s": (spec.bytes_per_s_at(read), plan.target.source),
        "memory_bytes": (plan.target.memory_bytes, plan.target.source),
        **{f"flop_s_{kind}": (rate, plan.target.source) for kind, rate in spec.flops.items()},
        "engine": (found.name, found.source),
        "prompt_tokens": (plan.scenario.prompt, "as asked"),
        "answer_tokens": (plan.scenario.answer, "as asked"),
        "cached_tokens": (plan.scenario.cached, "as asked"),
        "tokens_a_step": (plan.scenario.tokens_a_step, "as asked"),
    }
    if (offload := plan.scenario.offload) is not None:
        named["offload_byte_s"] = (offload.byte_s, offload.source)
    if plan.placed is not None:
        named["expert_hits"] = (plan.placed.hits, "as asked or as there is room")
    for name in _CONSTANTS:
        named[f"efficiency_{name}"] = (getattr(found, name), found.source)
    batch = plan.scenario.batch
    for phase in PHASES[:2]:
        named[f"band_{phase}"] = (list(found.band(phase, batch)), found.band_source(phase, batch))
    return {name: {"value": value, "source": source} for name, (value, source) in named.items()}
