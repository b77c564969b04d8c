"""MemoryPlan: what a model will take, known before anything is allocated. Owns the sum and the KV pool's size.

What the core will allocate is `native.footprint`'s to say; the tokenizer's part is an estimate.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.llm.config import LLMConfig
from twostroke.native.executor import BLOCK_TOKENS, KV_BITS
from twostroke.native.footprint import footprint
from twostroke.native.lower import sampled_output
from twostroke.program.program import Program
from twostroke.roofline.memory import check_memory
from twostroke.weights.source import WeightSource

LEAST_POOL_TOKENS = 256  # where half of what is free holds less than this, the model does not fit
_FIXED_OVERHEAD = 48 * 2**20  # tokenizer, templates, Python objects; measured
_OVERHEAD_A_TOKEN = 600  # of the vocabulary; measured


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
    found = footprint(
        program,
        source,
        num_threads=num_threads,
        max_context=context,
        max_step_tokens=config.max_step_tokens,
        kv_bits=KV_BITS[config.kv],
    )
    overhead = _FIXED_OVERHEAD + _OVERHEAD_A_TOKEN * program.values[sampled_output(program)].dim
    free = available - found.weight_bytes - found.scratch_bytes - overhead
    least = context if config.context is not None else min(context, LEAST_POOL_TOKENS)
    tokens = max(least, min(config.max_batch * context, free // 2 // found.kv_bytes_per_token))
    blocks = (math.ceil(tokens / BLOCK_TOKENS),) * len(found.block_bytes)
    plan = MemoryPlan(found.weight_bytes, found.kv_bytes_per_token, blocks, found.scratch_bytes, overhead, available)
    check_memory(plan.parts(), available)
    return plan
