"""Cost: what a program computes and moves in a step. Owns the evaluation; measures nothing, knows no hardware.

The rules (`cost_rules`) emit terms "coefficient x bits x unit"; a unit is a property of the step (its tokens, their
contexts). Evaluating them is a handful of multiplications, here or in a page that was given the coefficients. Counted
is the least traffic a correct execution needs: each weight once a step, each cached key and value once a chunk, each
activation where a fused op reads or writes it. Multiply-add is two FLOPs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from twostroke.program.cost_rules import COST_RULES, op_terms
from twostroke.program.cost_terms import OF_CONTEXT, Resource, Scope, Term, Unit
from twostroke.program.cost_units import ChunkShape, measure
from twostroke.program.program import Program

__all__ = [
    "COST_RULES",
    "OF_CONTEXT",
    "ChunkShape",
    "CostModel",
    "Resource",
    "StepCost",
    "Storage",
    "Term",
    "Unit",
    "kv_bytes",
    "kv_bytes_per_token",
    "measure",
    "op_terms",
    "state_bytes",
    "total_weight_bytes",
]


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


class Storage(NamedTuple):
    """Bits an element takes: of each weight by name, of cached keys, values and latents, of recurrent states, of
    activations."""

    weight_bits: Mapping[str, float]
    kv_bits: float = 16.0
    activation_bits: float = 32.0
    state_bits: float = 32.0

    def bits(self, name: str) -> float:
        """Of what a term's `storage` names."""
        own = {"kv": self.kv_bits, "activation": self.activation_bits, "state": self.state_bits}
        return own[name] if name in own else self.weight_bits[name]


def total_weight_bytes(program: Program, storage: Storage) -> float:
    """Bytes of all weights of a program, each counted once."""
    return sum(weight.num_elements * storage.bits(weight.name) / 8 for weight in program.weights.values())


def kv_bytes_per_token(program: Program, storage: Storage) -> float:
    """Bytes that one token's keys, values and latents take in all caches, while none has left its window."""
    return sum(cache.elements_per_token for cache in program.caches) * storage.kv_bits / 8


def kv_bytes(program: Program, storage: Storage, num_tokens: int) -> float:
    """Bytes of all that a request of `num_tokens` tokens keeps and grows by: a windowed cache no more than its window,
    one of segments no more than a segment."""
    kept = (group.elements_per_token * group.tokens_kept(num_tokens) for group in program.cache_groups)
    return sum(kept) * storage.kv_bits / 8


def state_bytes(program: Program, storage: Storage) -> float:
    """Bytes of a request's recurrent states, whatever its length."""
    return sum(group.state_elements for group in program.cache_groups) * storage.state_bits / 8


CoefficientKey = tuple[Resource, Unit, Scope]


class CostModel:
    """A program's coefficients for one storage; `step()` evaluates them. Immutable."""

    def __init__(self, program: Program, storage: Storage) -> None:
        self.program = program
        self.coefficients: dict[CoefficientKey, float] = {}
        for op in program.ops:
            for term in op_terms(op, program.values):
                per_element = 1.0 if term.resource is Resource.FLOPS else storage.bits(term.storage) / 8
                key = (term.resource, term.unit, term.scope)
                self.coefficients[key] = self.coefficients.get(key, 0.0) + term.count * per_element

    def context_flops(self, chunks: Iterable[ChunkShape]) -> float:
        """Those of a step's FLOPs that grow with what its rows see: attention's."""
        chunks = tuple(chunks)
        return sum(
            coefficient * measure(unit, scope, chunks)
            for (resource, unit, scope), coefficient in self.coefficients.items()
            if resource is Resource.FLOPS and unit in OF_CONTEXT
        )

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
