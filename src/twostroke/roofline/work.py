"""Work: what steps compute and move, split as time is. Owns the split of a program's cost; knows no hardware.

Every figure comes from the cost coefficients that the engine's ledger uses; nothing is counted here anew.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Literal, get_args

from twostroke.program.cost import ChunkShape, CostModel, Resource, Unit, measure
from twostroke.program.phase import Phase

Chunks = Sequence[ChunkShape]
Part = Literal["weights", "experts", "kv", "activations", "attention", "rows"]
_OF_CONTEXT = (Unit.ROW_CONTEXT, Unit.ROW_SEGMENT, Unit.PREFILL_ROW_CONTEXT, Unit.DECODE_ROW_CONTEXT)


@dataclass(frozen=True, slots=True)
class Work:
    """Totals over steps.

    layers           steps x layers of the model
    requests         chunks of generated rows
    weight_bytes     of weights that every step reads whole, and of rows of the embedding
    expert_bytes     of experts, the expected union over a step's rows
    kv_bytes         of keys, values, latents and recurrent states
    generated_flops  of linears and all else by row, for generated rows; `tiled_flops` for those of them in whole tiles,
                     `prompt_flops` for prompt rows
    expanded_flops   of one row through every weight that a step's prompt rows read: what expanding them is counted in
    attention_flops  of rows x context, for generated rows; `prompt_attention_flops` for prompt rows
    activation_bytes of what ops hand on; at these sizes they stay in caches
    """

    steps: float = 0.0
    layers: float = 0.0
    requests: float = 0.0
    weight_bytes: float = 0.0
    expert_bytes: float = 0.0
    kv_bytes: float = 0.0
    generated_flops: float = 0.0
    tiled_flops: float = 0.0
    prompt_flops: float = 0.0
    expanded_flops: float = 0.0
    attention_flops: float = 0.0
    prompt_attention_flops: float = 0.0
    activation_bytes: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def times(self, factor: float) -> "Work":
        """The same work `factor` times."""
        return Work(*(factor * each for each in astuple(self)))

    @property
    def flops(self) -> float:
        of_rows = self.generated_flops + self.tiled_flops + self.prompt_flops
        return of_rows + self.attention_flops + self.prompt_attention_flops

    @property
    def read_bytes(self) -> float:
        """Bytes that must come from memory: weights and caches."""
        return self.weight_bytes + self.expert_bytes + self.kv_bytes

    @property
    def intensity(self) -> float:
        """FLOPs per byte from memory (Williams et al. 2009)."""
        return self.flops / self.read_bytes if self.read_bytes else 0.0


@dataclass(frozen=True, slots=True)
class RowKinds:
    """How an engine runs generated rows.

    few   rows that have kernels of their own: those beyond count as prompt rows
    tile  so many rows are computed faster together; 0 where there is nothing of the kind
    """

    few: float = float("inf")
    tile: int = 0

    def shares(self, rows: int) -> tuple[float, float, float]:
        """Of so many generated rows, the shares that run one by one, in whole tiles, and as prompt rows."""
        own = min(1.0, self.few / rows) if rows else 1.0
        tiled = own * (rows // self.tile * self.tile / rows) if self.tile and rows else 0.0
        return own - tiled, tiled, 1 - own


def step_work(
    cost: CostModel, num_layers: int, *, prompts: Chunks = (), generated: Chunks = (), kinds: RowKinds | None = None
) -> Work:
    """The work of one step of prompt chunks and generated rows."""
    prompts = tuple(replace(chunk, phase=Phase.PREFILL) for chunk in prompts)
    generated = tuple(replace(chunk, phase=Phase.DECODE) for chunk in generated)
    totals: dict[Part, float] = dict.fromkeys(get_args(Part), 0.0)
    of_prompts: dict[Part, float] = dict.fromkeys(("rows", "attention"), 0.0)
    for (resource, unit, scope), coefficient in cost.coefficients.items():
        part = part_of(resource, unit)
        if part in of_prompts:
            of_prompts[part] += coefficient * measure(unit, scope, prompts)
            totals[part] += coefficient * measure(unit, scope, generated)
        else:
            totals[part] += coefficient * measure(unit, scope, prompts + generated)
    alone, tiled, as_prompts = (kinds or RowKinds()).shares(sum(chunk.length for chunk in generated))
    return Work(
        steps=1.0,
        layers=float(num_layers),
        requests=float(len(generated)),
        weight_bytes=totals["weights"],
        expert_bytes=totals["experts"],
        kv_bytes=totals["kv"],
        generated_flops=alone * totals["rows"],
        tiled_flops=tiled * totals["rows"],
        prompt_flops=of_prompts["rows"] + as_prompts * totals["rows"],
        expanded_flops=_expanded_flops(cost, prompts) if prompts else 0.0,
        attention_flops=totals["attention"],
        prompt_attention_flops=of_prompts["attention"],
        activation_bytes=totals["activations"],
    )


def _expanded_flops(cost: CostModel, prompts: tuple[ChunkShape, ...]) -> float:
    """FLOPs of one row, had it chosen all experts that any row of these chose. Of weights of the same width."""
    one_row = every_step = chosen_by_one = chosen = 0.0
    for (resource, unit, scope), coefficient in cost.coefficients.items():
        if resource is Resource.FLOPS and unit is Unit.ROW:
            one_row += coefficient
        elif resource is Resource.WEIGHT_BYTES and unit is Unit.STEP:
            every_step += coefficient
        elif resource is Resource.WEIGHT_BYTES and isinstance(scope, tuple):
            chosen_by_one += coefficient * scope[1]
            chosen += coefficient * measure(unit, scope, prompts)
    return one_row * (every_step + chosen) / (every_step + chosen_by_one)


def part_of(resource: Resource, unit: Unit) -> Part:
    """What part of the work a cost term is: FLOPs of "rows" or of "attention", bytes of one kind."""
    if resource is Resource.FLOPS:
        return "attention" if unit in _OF_CONTEXT else "rows"
    if resource is Resource.WEIGHT_BYTES:
        return "experts" if unit is Unit.EXPERTS else "weights"
    return "activations" if resource is Resource.ACTIVATION_BYTES else "kv"


def prefill_steps(prompt: int, batch: int, chunk: int, start: int = 0) -> dict[tuple[ChunkShape, ...], int]:
    """The steps that take `batch` prompts of `prompt` tokens each, after `start` cached ones, `chunk` rows at a time.

    How often each kind of step occurs. Short prompts share a step, long ones are cut.
    """
    steps: dict[tuple[ChunkShape, ...], int] = {}
    if prompt >= chunk:
        for at in range(0, prompt, chunk):
            length = min(chunk, prompt - at)
            shape = ChunkShape(start + at, length, 1 if at + length == prompt else 0)
            steps[(shape,)] = steps.get((shape,), 0) + batch
        return steps
    together = max(1, chunk // prompt)
    for count in [together] * (batch // together) + [batch % together] * bool(batch % together):
        shapes = (ChunkShape(start, prompt, 1),) * count
        steps[shapes] = steps.get(shapes, 0) + 1
    return steps
