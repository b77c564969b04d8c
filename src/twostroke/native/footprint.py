"""What the compiled core will allocate for a Program, in bytes, before it is made. Owns the sums; allocates nothing.

The counterpart is `Executor::finish` and the packing in csrc/; a test holds the two equal for every family.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from twostroke.native import _core
from twostroke.native.refusals import refuse_unsupported
from twostroke.program import ops
from twostroke.program.passes import plan_arena
from twostroke.program.program import Program
from twostroke.program.values import Cache, CacheSpec, Norm, RopeSpec, Rows, Weight
from twostroke.weights.source import TensorInfo
from twostroke.weights.tensor_types import TensorType

# As in csrc: rows of a packed group, output rows at once, keys of an attention range, query rows attended together,
# floats before an attention state, what each part of scratch is rounded up to, and columns of a row of one thread.
_LANES, _OUTPUT_TILE, _KEY_RANGE, _QUERIES, _STATE_HEADER, _ALIGN, _ROW = 16, 32, 256, 8, 16, 64, 512
_PREFILL_ROWS, _PREFILL_GROUPS, _PREFILL_COLUMNS, _BRAIN_REST = 512, 4, 512, 32  # of the bfloat16 kernels of prompts
_KV_GROUP = 32  # elements of an 8-bit key or value that share a scale
_PLAIN = (TensorType.F32, TensorType.F16, TensorType.BF16)


class WeightTypes(Protocol):
    """Which type each weight has; every `WeightSource` says so."""

    def info(self, name: str) -> TensorInfo:
        """Shape and type of a tensor."""


class Footprint(NamedTuple):
    """Bytes of packed weights; of arena and scratch; of one KV block over all its layers, one number a cache group."""

    weight_bytes: int
    scratch_bytes: int
    block_bytes: tuple[int, ...]

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of a token in all groups' pools."""
        return sum(self.block_bytes) // _core.block_tokens


def footprint(
    program: Program, source: WeightTypes, *, num_threads: int, max_context: int, max_step_tokens: int, kv_bits: float
) -> Footprint:
    """The bytes of a fused program with the weights of `source`; the settings are those of `ExecutorConfig`.

    Raises UnsupportedModelError for a program that the native executor cannot run.
    """
    refuse_unsupported(program)
    rows = _up(max_step_tokens, 1, least=_OUTPUT_TILE)
    weights = sum(_packed_bytes(matrix, source) for matrix in _matrices(program))
    weights += 4 * sum(weight.num_elements for weight, _ in _vectors(program))
    arena = plan_arena(program).dims
    scratch = 4 * (rows * arena[Rows.TOKENS] + _OUTPUT_TILE * arena[Rows.OUTPUTS])
    scratch += sum(_up(part, _ALIGN) for part in _linear_scratch(program, source, rows))
    scratch += sum(_up(part, _ALIGN) for part in _attention_scratch(program, rows, num_threads, max_context))
    scratch += num_threads * _up(_thread_scratch(program, source), _ALIGN)
    return Footprint(
        weights,
        scratch,
        tuple(_block_bytes(group.caches, kv_bits) for group in program.cache_groups),
    )


def _matrices(program: Program) -> dict[Weight, None]:
    """Every matrix, those of experts as one, each once."""
    found: dict[Weight, None] = {}
    for op in program.ops:
        if isinstance(op, ops.Embed):
            found[op.weight] = None
        elif isinstance(op, ops.Linear | ops.Experts):
            found.update(dict.fromkeys(op.matrices))
    return found


def _vectors(program: Program) -> dict[tuple[Weight, float], None]:
    """Every vector with what is added to it, each once."""

    def of(op: ops.Op) -> Iterator[tuple[Weight | None, float]]:
        norm: Norm | None = getattr(op, "norm", None)
        if norm is not None:
            yield norm.weight, norm.offset
            yield norm.bias, 0.0
        for bias in getattr(op, "biases", None) or ():
            yield bias, 0.0
        if isinstance(op, ops.Attention):
            yield op.sinks, 0.0
        if isinstance(op, ops.Reorder):
            yield op.order, 0.0

    return {(weight, offset): None for op in program.ops for weight, offset in of(op) if weight is not None}


def _packed_bytes(matrix: Weight, source: WeightTypes) -> int:
    """In groups of 16 rows, the last one filled up; each expert's matrix by itself."""
    rows, cols = matrix.shape[-2:]
    experts = matrix.shape[0] if len(matrix.shape) == 3 else 1
    return experts * _up(rows, _LANES) * source.info(matrix.name).type.row_bytes(cols)


def _linear_scratch(program: Program, source: WeightTypes, rows: int) -> Iterator[int]:
    """Inputs of linears in 16 bits with scales and sums, as floats where a matrix is of floats, and in bfloat16; and
    experts' halves."""
    elements = brains = inner = outer = 0
    has_plain = False
    for op in program.ops:
        if isinstance(op, ops.Linear | ops.Experts):
            pairs = rows * op.routed.top_k if isinstance(op, ops.Experts) else rows
            for matrix in op.matrices:
                elements = max(elements, pairs * _up(matrix.shape[-1], 32))
                brains = max(brains, (pairs + _BRAIN_REST) * ((matrix.shape[-1] + 31) // 32 | 1) * 32)
                has_plain |= source.info(matrix.name).type in _PLAIN
        if isinstance(op, ops.Experts):
            gate, _, down = op.matrices
            inner, outer = max(inner, pairs * gate.shape[1]), max(outer, pairs * down.shape[1])
    yield from (2 * elements, elements // 32 * 4, elements // 16 * 4, 4 * elements if has_plain else 0)
    yield from (2 * brains, 4 * inner, 4 * outer)


def _attention_scratch(program: Program, rows: int, num_threads: int, max_context: int) -> Iterator[int]:
    """Rotated heads, tables of RoPE, and states of key ranges."""
    attentions = [op for op in program.ops if isinstance(op, ops.Attention)]
    yield 4 * rows * max(((op.num_heads + op.cache.num_kv_heads) * op.cache.head_dim for op in attentions), default=0)
    ropes: set[RopeSpec] = {
        op.rope for op in program.ops if isinstance(op, ops.Attention | ops.Rope) and op.rope is not None
    }
    yield from (4 * 2 * rows * (rope.dim // 2) for rope in ropes)
    state = max((_STATE_HEADER + _up(op.cache.head_dim, _LANES) for op in attentions), default=0)
    heads = max((op.num_heads for op in attentions), default=1)
    ranges = _up(max_context, _KEY_RANGE) // _KEY_RANGE
    yield 4 * num_threads * heads * ranges * state * 4 if ranges > 1 else 0


def _thread_scratch(program: Program, source: WeightTypes) -> int:
    """Scores and states of the queries attended together; one row for linears, in 16 bits and as floats; and a panel of
    weights in bfloat16 with the sums of the rows that it is multiplied by."""
    attentions = [op for op in program.ops if isinstance(op, ops.Attention)]
    state = max((_STATE_HEADER + _up(op.cache.head_dim, _LANES) for op in attentions), default=0)
    matrices = [m for op in program.ops if isinstance(op, ops.Linear | ops.Experts) for m in op.matrices]
    row = max((_up(matrix.shape[-1], _ROW) for matrix in matrices), default=0)
    has_plain = any(source.info(matrix.name).type in _PLAIN for matrix in matrices)
    linears = 4 * _QUERIES * (_KEY_RANGE + 2 * state) + 2 * row + row // 32 * 4 + row // 16 * 4 + 4 * row * has_plain
    panel = _PREFILL_GROUPS * _LANES * (4 * (_PREFILL_ROWS + _BRAIN_REST) + 2 * _PREFILL_COLUMNS)
    return _up(linears, _ALIGN) + panel


def _block_bytes(caches: tuple[Cache, ...], bits: float) -> int:
    """Of all layers of a group: values of a head are filled up to a multiple of 16, keys are not."""
    kv = (cache for cache in caches if isinstance(cache, CacheSpec))
    heads = (
        cache.num_kv_heads * sum(_kv_bytes(dim, bits) for dim in (cache.head_dim, _up(cache.head_dim, _LANES)))
        for cache in kv
    )
    return int(_core.block_tokens * sum(heads))


def _kv_bytes(dim: int, bits: float) -> float:
    """Of one key or value; a part of a bit more than whole ones is two bytes for each group that shares a scale."""
    scales = 2 * -(-dim // _KV_GROUP) if bits % 1 else 0
    return dim * (bits // 1) / 8 + scales


def _up(number: int, multiple: int, least: int = 0) -> int:
    """The next multiple, at least `least`."""
    return max(least, -(-number // multiple) * multiple)
