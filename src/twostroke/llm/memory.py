"""MemoryPlan: what a model will take, known before anything is allocated. Owns the check before loading.

The terms and the pool's size are `roofline.own_memory`'s, with which `twostroke plan` predicts too.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from twostroke.llm.config import LLMConfig
from twostroke.native.executor import BLOCK_TOKENS
from twostroke.program.program import Program
from twostroke.roofline.memory import check_memory
from twostroke.roofline.own_memory import LEAST_POOL_TOKENS, own_terms
from twostroke.weights.source import WeightSource


class MemoryPlan(NamedTuple):
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
    terms = own_terms(
        program,
        source,
        num_threads=num_threads,
        max_context=context,
        max_step_tokens=config.max_step_tokens,
        kv=config.kv,
    )
    least = context if config.context is not None else min(context, LEAST_POOL_TOKENS)
    tokens = terms.pool_tokens(available, context, config.max_batch, least=least)
    plan = MemoryPlan(
        weight_bytes=terms.weight_bytes,
        kv_bytes_per_token=terms.kv_bytes_per_token,
        num_blocks=(math.ceil(tokens / BLOCK_TOKENS),) * len(terms.block_bytes),
        activation_bytes=terms.activation_bytes,
        overhead_bytes=terms.overhead_bytes,
        available_bytes=available,
    )
    check_memory(plan.parts(), available)
    return plan
