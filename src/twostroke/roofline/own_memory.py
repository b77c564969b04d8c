"""What this engine takes for a model: weights, a token's cache, scratch, itself. Owns the terms and the pool's size.

One code for a plan and for a run: `llm.memory` checks with it before it loads, `memory_sum` predicts with it. What the
core will allocate is `native.footprint`'s to say; the tokenizer's part is an estimate.
"""

import math
from typing import NamedTuple

from twostroke.native.executor import BLOCK_TOKENS, KV_BITS
from twostroke.native.footprint import WeightTypes, footprint
from twostroke.native.lower import sampled_output
from twostroke.program.program import Program

LEAST_POOL_TOKENS = 256  # where half of what is free holds less than this, the model does not fit
_FIXED_OVERHEAD = 48 * 2**20  # tokenizer, templates, Python objects; measured
_OVERHEAD_A_TOKEN = 600  # of the vocabulary; measured


class OwnTerms(NamedTuple):
    """Bytes by what they are for. `block_bytes` are of one KV block, one number a cache group."""

    weight_bytes: int
    block_bytes: tuple[int, ...]
    activation_bytes: int
    overhead_bytes: int

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of a token in all groups' pools."""
        return sum(self.block_bytes) // BLOCK_TOKENS

    @property
    def fixed_bytes(self) -> int:
        """All but the cache."""
        return self.weight_bytes + self.activation_bytes + self.overhead_bytes

    def pool_bytes(self, num_tokens: int) -> int:
        """Bytes of a pool for so many tokens, in whole blocks."""
        return math.ceil(num_tokens / BLOCK_TOKENS) * sum(self.block_bytes)

    def pool_tokens(self, available: int, context: int, max_batch: int, *, least: int) -> int:
        """Tokens of the pool in `available` bytes: `context` for each of `max_batch` requests, or as many as half of
        what the rest leaves free, but `least` at any rate."""
        free = available - self.fixed_bytes
        return max(least, min(max_batch * context, free // 2 // max(1, self.kv_bytes_per_token)))


def own_terms(
    program: Program, source: WeightTypes, *, num_threads: int, max_context: int, max_step_tokens: int, kv: str
) -> OwnTerms:
    """The terms of a fused program with weights of these types; the settings are those of `ExecutorConfig`.

    Raises UnsupportedModelError for a program that the native executor cannot run.
    """
    found = footprint(
        program,
        source,
        num_threads=num_threads,
        max_context=max_context,
        max_step_tokens=max_step_tokens,
        kv_bits=KV_BITS[kv],
    )
    overhead = _FIXED_OVERHEAD + _OVERHEAD_A_TOKEN * program.values[sampled_output(program)].dim
    return OwnTerms(found.weight_bytes, found.block_bytes, found.scratch_bytes, overhead)
