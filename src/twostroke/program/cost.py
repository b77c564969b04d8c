"""Cost: what a program computes and moves in a step. Owns the evaluation; measures nothing, knows no hardware.

The rules (`cost_rules`) emit terms "coefficient x bits x unit"; a unit is a property of the step (its tokens, their
contexts). Evaluating them is a handful of multiplications, here or in a page that was given the coefficients. Counted
is the least traffic a correct execution needs: each weight once a step, each cached key and value once a chunk, each
activation where a fused op reads or writes it. Multiply-add is two FLOPs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twostroke.program.cost_rules import COST_RULES, op_terms
from twostroke.program.cost_terms import Resource, Scope, Term, Unit
from twostroke.program.program import Program

__all__ = [
    "COST_RULES",
    "ChunkShape",
    "CostModel",
    "Resource",
    "StepCost",
    "Storage",
    "Term",
    "Unit",
    "kv_bytes_per_token",
    "measure",
    "op_terms",
    "total_weight_bytes",
]


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """Tokens `start` .. `start + length` of one request, `num_outputs` of which give outputs."""

    start: int
    length: int
    num_outputs: int


@dataclass(frozen=True, slots=True)
class StepCost:
    """Totals of a step: FLOPs and bytes."""

    flops: float
    weight_bytes: float
    kv_bytes: float
    activation_bytes: float

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity, FLOPs per byte (Williams et al. 2009)."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True, slots=True)
class Storage:
    """Bits an element takes: of each weight by name, of the KV cache, of activations."""

    weight_bits: Mapping[str, float]
    kv_bits: float = 16.0
    activation_bits: float = 32.0

    def bits(self, name: str) -> float:
        if name == "kv":
            return self.kv_bits
        return self.activation_bits if name == "activation" else self.weight_bits[name]


def total_weight_bytes(program: Program, storage: Storage) -> float:
    """Bytes of all weights of a program, each counted once."""
    return sum(weight.num_elements * storage.bits(weight.name) / 8 for weight in program.weights.values())


def kv_bytes_per_token(program: Program, storage: Storage) -> float:
    """Bytes that one token's keys and values take in all caches, while none has left its window."""
    return sum(cache.elements_per_token for cache in program.caches) * storage.kv_bits / 8


CoefficientKey = tuple[Resource, Unit, Scope]


class CostModel:
    """A program's coefficients for one storage; `step()` evaluates them. Immutable."""

    def __init__(self, program: Program, storage: Storage) -> None:
        self.coefficients: dict[CoefficientKey, float] = {}
        for op in program.ops:
            for term in op_terms(op, program.values):
                per_element = 1.0 if term.resource is Resource.FLOPS else storage.bits(term.storage) / 8
                key = (term.resource, term.unit, term.scope)
                self.coefficients[key] = self.coefficients.get(key, 0.0) + term.count * per_element

    def step(self, chunks: Iterable[ChunkShape]) -> StepCost:
        """FLOPs and bytes of a step made of these chunks."""
        chunks = tuple(chunks)
        units = {
            (unit, scope): measure(unit, scope, chunks)
            for unit, scope in {(unit, scope) for _, unit, scope in self.coefficients}
        }
        totals = dict.fromkeys(Resource, 0.0)
        for (resource, unit, scope), coefficient in self.coefficients.items():
            totals[resource] += coefficient * units[unit, scope]
        return StepCost(
            totals[Resource.FLOPS],
            totals[Resource.WEIGHT_BYTES],
            totals[Resource.KV_BYTES],
            totals[Resource.ACTIVATION_BYTES],
        )


def measure(unit: Unit, scope: Scope, chunks: tuple[ChunkShape, ...]) -> float:
    """How many of a unit a step has. A window bounds the keys a row sees.

    Of E experts of which each of n tokens chooses k, uniformly and independently, E (1 - (1 - k/E)^n) are expected to
    be chosen by at least one.
    """
    if unit is Unit.STEP:
        return 1.0 if chunks else 0.0
    if unit is Unit.OUTPUT_STEP:
        return 1.0 if any(chunk.num_outputs for chunk in chunks) else 0.0
    if unit is Unit.ROW:
        return float(sum(chunk.length for chunk in chunks))
    if unit is Unit.OUTPUT:
        return float(sum(chunk.num_outputs for chunk in chunks))
    if isinstance(scope, tuple):
        num_experts, top_k = scope
        return num_experts * (1 - (1 - top_k / num_experts) ** sum(chunk.length for chunk in chunks))
    if unit is Unit.ROW_CONTEXT:
        return float(sum(_row_context(chunk, scope) for chunk in chunks))
    return float(sum(_chunk_context(chunk, scope) for chunk in chunks))


def _row_context(chunk: ChunkShape, window: int | None) -> int:
    end = chunk.start + chunk.length
    if window is None or end <= window:
        return (chunk.start + 1 + end) * chunk.length // 2
    growing = max(0, window - chunk.start)  # rows that still see fewer keys than the window
    return (chunk.start + 1 + chunk.start + growing) * growing // 2 + (chunk.length - growing) * window


def _chunk_context(chunk: ChunkShape, window: int | None) -> int:
    end = chunk.start + chunk.length
    return end if window is None else min(end, window + chunk.length - 1)
