"""Cost: what each op computes and moves, as coefficients. Owns the formulas; measures nothing, knows no hardware.

A rule emits terms "coefficient x bits x unit"; a unit is a property of the step (its tokens, their contexts).
Evaluating them is a handful of multiplications, here or in a page that was given the coefficients. Counted is the
least traffic a correct execution needs: each weight once a step, each cached key and value once a chunk, each
activation where a fused op reads or writes it. Multiply-add is two FLOPs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from twostroke.program import ops
from twostroke.program.program import Program
from twostroke.program.values import Rows, Value, Weight


class Resource(StrEnum):
    FLOPS = "flops"
    WEIGHT_BYTES = "weight_bytes"
    KV_BYTES = "kv_bytes"
    ACTIVATION_BYTES = "activation_bytes"


class Unit(StrEnum):
    """What a coefficient is multiplied by."""

    STEP = "step"  # 1
    OUTPUT_STEP = "output_step"  # 1 where any output row was asked for
    ROW = "row"  # tokens of the step
    OUTPUT = "output"  # output rows of the step
    ROW_CONTEXT = "row_context"  # sum over rows of the keys each one sees, its own included
    CHUNK_CONTEXT = "chunk_context"  # sum over chunks of the cached keys any of its rows sees


@dataclass(frozen=True, slots=True)
class Term:
    """`count` per `unit`; for bytes, `count` elements of the storage named `storage` ("kv", "activation", a weight)."""

    resource: Resource
    unit: Unit
    count: float
    storage: str = ""
    window: int | None = None


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


CoefficientKey = tuple[Resource, Unit, int | None]


class CostModel:
    """A program's coefficients for one storage; `step()` evaluates them. Immutable."""

    def __init__(self, program: Program, storage: Storage) -> None:
        self.coefficients: dict[CoefficientKey, float] = {}
        for op in program.ops:
            for term in op_terms(op, program.values):
                per_element = 1.0 if term.resource is Resource.FLOPS else storage.bits(term.storage) / 8
                key = (term.resource, term.unit, term.window)
                self.coefficients[key] = self.coefficients.get(key, 0.0) + term.count * per_element

    def step(self, chunks: Iterable[ChunkShape]) -> StepCost:
        """FLOPs and bytes of a step made of these chunks."""
        chunks = tuple(chunks)
        units = {
            (unit, window): measure(unit, window, chunks)
            for unit, window in {(unit, window) for _, unit, window in self.coefficients}
        }
        totals = dict.fromkeys(Resource, 0.0)
        for (resource, unit, window), coefficient in self.coefficients.items():
            totals[resource] += coefficient * units[unit, window]
        return StepCost(
            totals[Resource.FLOPS],
            totals[Resource.WEIGHT_BYTES],
            totals[Resource.KV_BYTES],
            totals[Resource.ACTIVATION_BYTES],
        )


def measure(unit: Unit, window: int | None, chunks: tuple[ChunkShape, ...]) -> float:
    """How many of a unit a step has; a window bounds the keys a row sees."""
    if unit is Unit.STEP:
        return 1.0 if chunks else 0.0
    if unit is Unit.OUTPUT_STEP:
        return 1.0 if any(chunk.num_outputs for chunk in chunks) else 0.0
    if unit is Unit.ROW:
        return float(sum(chunk.length for chunk in chunks))
    if unit is Unit.OUTPUT:
        return float(sum(chunk.num_outputs for chunk in chunks))
    if unit is Unit.ROW_CONTEXT:
        return float(sum(_row_context(chunk, window) for chunk in chunks))
    return float(sum(_chunk_context(chunk, window) for chunk in chunks))


def _row_context(chunk: ChunkShape, window: int | None) -> int:
    end = chunk.start + chunk.length
    if window is None or end <= window:
        return (chunk.start + 1 + end) * chunk.length // 2
    growing = max(0, window - chunk.start)  # rows that still see fewer keys than the window
    return (chunk.start + 1 + chunk.start + growing) * growing // 2 + (chunk.length - growing) * window


def _chunk_context(chunk: ChunkShape, window: int | None) -> int:
    end = chunk.start + chunk.length
    return end if window is None else min(end, window + chunk.length - 1)


Values = Mapping[str, Value]
Rule = Callable[[Any, Values], Iterator[Term]]


def op_terms(op: ops.Op, values: Values) -> Iterator[Term]:
    """The cost terms of one op: its rule's, and the activations it reads and writes."""
    yield from COST_RULES[type(op)](op, values)
    for name in (*op.inputs, *op.outputs):
        unit = Unit.OUTPUT if isinstance(op, ops.OutputRows) else _row_unit(values[name])
        yield Term(Resource.ACTIVATION_BYTES, unit, values[name].dim, "activation")


def _row_unit(value: Value) -> Unit:
    return Unit.OUTPUT if value.rows is Rows.OUTPUTS else Unit.ROW


def _step_unit(value: Value) -> Unit:
    return Unit.OUTPUT_STEP if value.rows is Rows.OUTPUTS else Unit.STEP


def _whole(weight: Weight, value: Value) -> Term:
    return Term(Resource.WEIGHT_BYTES, _step_unit(value), weight.num_elements, weight.name)


def _flops(value: Value, count: float) -> Term:
    return Term(Resource.FLOPS, _row_unit(value), count)


def _embed(op: ops.Embed, values: Values) -> Iterator[Term]:
    yield Term(Resource.WEIGHT_BYTES, Unit.ROW, op.weight.shape[1], op.weight.name)


def _rms_norm(op: ops.RmsNorm, values: Values) -> Iterator[Term]:
    x = values[op.input]
    yield _whole(op.norm.weight, x)
    yield _flops(x, 4 * x.dim)


def _linear(op: ops.Linear, values: Values) -> Iterator[Term]:
    x = values[op.input]
    for weight in op.weights:
        yield _whole(weight, x)
    yield _flops(x, sum(2 * matrix.num_elements for matrix in op.matrices))
    yield _flops(x, sum(bias.num_elements for bias in op.biases if bias is not None))
    if op.norm is not None:
        yield _flops(x, 4 * x.dim)
    if op.residual is not None:
        yield _flops(x, values[op.residual].dim)
    if op.gate is not None:
        yield _flops(x, 5 * op.matrices[0].shape[0])


def _rope(op: ops.Rope, values: Values) -> Iterator[Term]:
    x = values[op.input]
    yield _flops(x, 3 * (x.dim // op.head_dim) * op.rope.dim)


def _attention(op: ops.Attention, values: Values) -> Iterator[Term]:
    q, cache = values[op.q], op.cache
    if op.rope is not None:
        yield _flops(q, 3 * (op.num_heads + cache.num_kv_heads) * op.rope.dim)
    yield Term(Resource.FLOPS, Unit.ROW_CONTEXT, (4 * cache.head_dim + 4) * op.num_heads, window=cache.window)
    yield Term(Resource.KV_BYTES, Unit.ROW, cache.elements_per_token, "kv")
    yield Term(Resource.KV_BYTES, Unit.CHUNK_CONTEXT, cache.elements_per_token, "kv", cache.window)


def _add(op: ops.Add, values: Values) -> Iterator[Term]:
    yield _flops(values[op.left], values[op.left].dim)


def _swiglu(op: ops.SwiGLU, values: Values) -> Iterator[Term]:
    yield _flops(values[op.gate], 5 * values[op.gate].dim)


def _output_rows(op: ops.OutputRows, values: Values) -> Iterator[Term]:
    return iter(())


COST_RULES: Mapping[type[ops.Op], Rule] = {
    ops.Embed: _embed,
    ops.RmsNorm: _rms_norm,
    ops.Linear: _linear,
    ops.Rope: _rope,
    ops.Attention: _attention,
    ops.Add: _add,
    ops.SwiGLU: _swiglu,
    ops.OutputRows: _output_rows,
}
