"""What attention, and ops that keep something of a request, cost. Owns one rule each, of coefficients.

A phase's own form of an op has terms of that phase's units. The rest is with `cost_rules`.
"""

from collections.abc import Iterator, Mapping

from twostroke.program import ops
from twostroke.program.cost_terms import Resource, Term, Unit, flops, whole
from twostroke.program.values import Value

Values = Mapping[str, Value]

_SOFTMAX, _CAPPED = 4, 7  # FLOPs a score beside its products


def attention(op: ops.Attention, values: Values) -> Iterator[Term]:
    q, cache = values[op.q], op.cache
    written = op.k is not None
    if op.rope is not None:
        yield flops(q, 3 * (op.num_heads + written * cache.num_kv_heads) * op.rope.dim)
    if op.sinks is not None:
        yield whole(op.sinks, q)
        yield flops(q, 2 * op.num_heads)
    rows, reads = Unit.ROW_CONTEXT, Unit.CHUNK_CONTEXT
    if cache.segment is not None:
        rows, reads = Unit.ROW_SEGMENT, Unit.CHUNK_SEGMENT
    scope = cache.segment or cache.window
    per_key = 4 * cache.head_dim + (_SOFTMAX if op.soft_cap is None else _CAPPED)
    yield Term(Resource.FLOPS, rows, per_key * op.num_heads, scope=scope)
    if written:
        yield Term(Resource.KV_BYTES, Unit.ROW, cache.elements_per_token, "kv")
    yield Term(Resource.KV_BYTES, reads, cache.elements_per_token, "kv", scope)


def encoder_attention(op: ops.EncoderAttention, values: Values) -> Iterator[Term]:
    """Of n rows each sees n keys: n^2 = 2 n (n + 1) / 2 - n, the causal keys twice without a second self."""
    q = values[op.q]
    per_key = 4 * q.dim + _SOFTMAX * op.num_heads
    yield Term(Resource.FLOPS, Unit.ROW_CONTEXT, 2 * per_key)
    yield flops(q, -per_key)


def latent_attention(op: ops.LatentAttention, values: Values) -> Iterator[Term]:
    """Prefill expands every latent its chunk sees once, decode each of its queries and mixed latents."""
    q, cache, heads = values[op.q], op.cache, op.num_heads
    expand, rotated = 2 * op.expand.num_elements, op.rope.dim
    yield whole(op.expand, q)
    yield flops(q, 3 * (heads + 1) * rotated)
    expanded = 2 * (op.content_dim + rotated + op.value_dim) + _SOFTMAX
    yield Term(Resource.FLOPS, Unit.PREFILL_CHUNK_CONTEXT, expand)
    yield Term(Resource.FLOPS, Unit.PREFILL_ROW_CONTEXT, heads * expanded)
    absorbed = 2 * (2 * cache.rank + rotated) + _SOFTMAX
    yield Term(Resource.FLOPS, Unit.DECODE_ROW, expand)
    yield Term(Resource.FLOPS, Unit.DECODE_ROW_CONTEXT, heads * absorbed)
    yield Term(Resource.KV_BYTES, Unit.ROW, cache.elements_per_token, "kv")
    yield Term(Resource.KV_BYTES, Unit.CHUNK_CONTEXT, cache.elements_per_token, "kv")


def _state(elements: int) -> Term:
    """A state is read and written once a chunk."""
    return Term(Resource.KV_BYTES, Unit.CHUNK, 2 * elements, "state")


def convolution(op: ops.Convolution, values: Values) -> Iterator[Term]:
    x = values[op.input]
    yield whole(op.weight, x)
    yield flops(x, (2 * op.width + 4) * x.dim)
    yield _state(op.cache.state_elements)


def gated_delta(op: ops.GatedDelta, values: Values) -> Iterator[Term]:
    """Decode does the recurrence: a product, two sums of products and a rank-1 update of each head's matrix.

    Prefill does it chunk by chunk (Yang et al. 2024): of C rows, products of keys with keys and with queries, the
    inverse of a triangle of C, its products with keys and values, the mix of values, and three with the state.
    """
    q, v, heads, rows = values[op.q], values[op.v], op.num_value_heads, op.chunk
    yield whole(op.log_decay, v)
    yield whole(op.decay_bias, v)
    yield flops(v, 4 * (q.dim + values[op.k].dim) + 12 * heads)  # lengths, decays, gates
    key, value = q.dim // op.num_key_heads, v.dim // heads
    yield Term(Resource.FLOPS, Unit.DECODE_ROW, 7 * heads * key * value)
    triangle = rows * rows / 3
    yield Term(
        Resource.FLOPS,
        Unit.PREFILL_ROW,
        heads * (6 * key * value + 2 * rows * (3 * key + 2 * value) + triangle),
    )
    yield _state(op.cache.state_elements)
