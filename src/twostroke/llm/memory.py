"""MemoryPlan: what a model will take, known before anything is allocated. Owns the sum and the KV pool's size.

The executor reports what it took in the end; a test holds the two together.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.llm.config import LLMConfig
from twostroke.native.executor import BLOCK_TOKENS, KV_BITS
from twostroke.native.lower import sampled_output
from twostroke.program.ops import Attention, Experts, Linear, Rope
from twostroke.program.passes import plan_arena
from twostroke.program.program import Program
from twostroke.program.values import Rows, Weight
from twostroke.roofline.memory import check_memory
from twostroke.weights.source import WeightSource
from twostroke.weights.tensor_types import TensorType

LEAST_POOL_TOKENS = 256  # where half of what is free holds less than this, the model does not fit
_FIXED_OVERHEAD = 48 * 2**20  # tokenizer, templates, Python objects; measured
_OVERHEAD_A_TOKEN = 600  # of the vocabulary; measured

# How the core lays out memory: rows of a packed group, output rows at once, keys of an attention range, query rows
# attended together, floats before an attention state.
_LANES, _OUTPUT_TILE, _KEY_RANGE, _QUERIES, _STATE_HEADER = 16, 32, 256, 8, 16
_FLOATS = (TensorType.F32, TensorType.F16, TensorType.BF16)  # whose inputs are kept plain, too


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes by what they are for, and the blocks of the KV pool, one number a cache group.

    activation_bytes  the activation arena and the executor's scratch
    overhead_bytes    tokenizer and Python objects, about
    """

    weight_bytes: int
    kv_bytes_per_token: int
    num_blocks: tuple[int, ...]
    activation_bytes: int
    overhead_bytes: int
    available_bytes: int

    @property
    def pool_tokens(self) -> int:
        """Tokens that the KV pool holds, all requests together."""
        return min(self.num_blocks, default=0) * BLOCK_TOKENS

    @property
    def kv_pool_bytes(self) -> int:
        return self.pool_tokens * self.kv_bytes_per_token

    def parts(self) -> Mapping[str, int]:
        """The terms of the sum, by name."""
        return {
            "weights": self.weight_bytes,
            f"KV cache of {self.pool_tokens} tokens": self.kv_pool_bytes,
            "activations": self.activation_bytes,
            "overhead": self.overhead_bytes,
        }


def plan_memory(
    program: Program, source: WeightSource, config: LLMConfig, *, context: int, num_threads: int, available: int
) -> MemoryPlan:
    """The sum for a fused program in `available` bytes.

    The KV pool holds `context` tokens for each of `max_batch` requests, or as many as half of what the rest leaves
    free; never less than one request of a context that was asked for. Raises NotEnoughMemoryError, with the sum,
    where it exceeds `available`.
    """
    weights = sum(_packed_bytes(weight, source) for weight in program.weights.values())
    per_token = _kv_bytes_per_token(program, KV_BITS[config.kv])
    activations = _activation_bytes(program, source, config.max_step_tokens, context, num_threads)
    overhead = _FIXED_OVERHEAD + _OVERHEAD_A_TOKEN * program.values[sampled_output(program)].dim
    free = available - weights - activations - overhead
    least = context if config.context is not None else min(context, LEAST_POOL_TOKENS)
    tokens = max(least, min(config.max_batch * context, free // 2 // per_token))
    blocks = (math.ceil(tokens / BLOCK_TOKENS),) * len(program.cache_groups)
    plan = MemoryPlan(weights, per_token, blocks, activations, overhead, available)
    check_memory(plan.parts(), available)
    return plan


def _kv_bytes_per_token(program: Program, bits: float) -> int:
    """In the pool: values of a head are filled up to a multiple of 16, keys are not."""
    dims = [(cache.num_kv_heads, cache.head_dim) for cache in program.caches]
    return int(sum(heads * (dim + math.ceil(dim / _LANES) * _LANES) for heads, dim in dims) * bits / 8)


def _packed_bytes(weight: Weight, source: WeightSource) -> int:
    """A matrix, each expert's by itself, is packed in groups of 16 rows, the last one filled up."""
    num_bytes = source.info(weight.name).num_bytes
    if len(weight.shape) == 1 or weight.name.endswith(".bias"):
        return num_bytes
    rows = weight.shape[-2]
    return num_bytes // rows * math.ceil(rows / _LANES) * _LANES


def _activation_bytes(program: Program, source: WeightSource, max_rows: int, context: int, num_threads: int) -> int:
    """The arena, and what the executor sets aside: quantised inputs of a linear, rotated heads, attention states."""
    rows = max(max_rows, _OUTPUT_TILE)
    arena = plan_arena(program).dims
    floats = rows * arena[Rows.TOKENS] + _OUTPUT_TILE * arena[Rows.OUTPUTS]
    attentions = [op for op in program.ops if isinstance(op, Attention)]
    heads = max((op.num_heads for op in attentions), default=1)
    head_dim = max((op.cache.head_dim for op in attentions), default=0)
    floats += rows * max((op.cache.head_dim * (op.num_heads + op.cache.num_kv_heads) for op in attentions), default=0)
    ropes = {op.rope for op in program.ops if isinstance(op, Attention | Rope) and op.rope is not None}
    floats += rows * sum(rope.dim for rope in ropes)  # a table each
    state = _STATE_HEADER + math.ceil(head_dim / _LANES) * _LANES
    ranges = math.ceil(context / _KEY_RANGE)
    floats += 4 * num_threads * heads * ranges * state if ranges > 1 else 0
    floats += num_threads * _QUERIES * (_KEY_RANGE + 2 * state)
    return 4 * floats + _input_bytes(program, source, rows)


def _input_bytes(program: Program, source: WeightSource, rows: int) -> int:
    """Quantised inputs of the linear that needs most, and what each chosen expert of a row reads and gives."""
    mixtures = [op for op in program.ops if isinstance(op, Experts)]
    readers = [(matrix, rows) for op in program.ops if isinstance(op, Linear) for matrix in op.matrices]
    readers += [(matrix, rows * op.routed.top_k) for op in mixtures for matrix in op.matrices]
    elements = max((count * math.ceil(matrix.shape[-1] / 32) * 32 for matrix, count in readers), default=0)
    has_plain = any(source.info(matrix.name).type in _FLOATS for matrix, _ in readers)
    inner = max((rows * op.routed.top_k * op.ffn_dim for op in mixtures), default=0)
    outer = max((rows * op.routed.top_k * op.matrices[2].shape[1] for op in mixtures), default=0)
    return int(elements * (2 + 4 / 32 + 4 / 16 + (4 if has_plain else 0))) + 4 * (inner + outer)
