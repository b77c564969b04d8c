"""What attention means, in NumPy: RoPE, softmax attention over cached keys and values, and over cached latents.

Owns the arithmetic of the ops `Rope`, `Attention`, `EncoderAttention` and `LatentAttention`, for clarity, not speed.
"""

import numpy as np
import numpy.typing as npt

from twostroke.program import ops
from twostroke.program.activations import Array, soft_capped
from twostroke.program.phase import Phase
from twostroke.program.reference_step import Cached, Step
from twostroke.program.rope import inverse_frequencies
from twostroke.program.values import CacheSpec, RopeSpec

# Scores are computed for this many rows at a time, which bounds their memory.
_ROWS_AT_ONCE = 256


def rope(op: ops.Rope, step: Step) -> tuple[Array, ...]:
    return (_rotated(step.values[op.input], op.head_dim, op.rope, step),)


def attention(op: ops.Attention, step: Step) -> tuple[Array, ...]:
    q, *written = (step.values[name] for name in op.inputs)
    cache = op.cache
    if op.rope is not None:
        q = _rotated(q, cache.head_dim, op.rope, step)
        written[:1] = [_rotated(k, cache.head_dim, op.rope, step) for k in written[:1]]
    keys, values = _appended(cache, written, step) if written else step.caches[cache.name]
    q = q.reshape(len(q), cache.num_kv_heads, -1, cache.head_dim)  # (num_rows, num_kv_heads, heads a KV head, head_dim)
    sinks = None if op.sinks is None else step.weight(op.sinks).reshape(cache.num_kv_heads, -1)
    out = np.empty_like(q)
    for first in range(0, len(q), _ROWS_AT_ONCE):
        rows = slice(first, min(first + _ROWS_AT_ONCE, len(q)))
        visible = _visible(step.start + first, step.start + rows.stop, cache)
        for head in range(cache.num_kv_heads):
            end = visible.shape[1]
            scores = _scores(q[rows, head] * q.dtype.type(op.scale), keys[:end, head], op.soft_cap)
            sink = None if sinks is None else sinks[head]
            out[rows, head] = _attended(scores, values[:end, head], visible, sink)
    return (out.reshape(len(out), -1),)


def encoder_attention(op: ops.EncoderAttention, step: Step) -> tuple[Array, ...]:
    q, k, v = (step.values[name].reshape(len(step.values[name]), op.num_heads, -1) for name in op.inputs)
    if step.start:
        raise ValueError(f"an encoder takes a request whole, not its rows from {step.start} on")
    visible = np.ones((len(q), len(q)), np.bool_)
    scores = [q[:, head] @ k[:, head].T * q.dtype.type(op.scale) for head in range(op.num_heads)]
    mixed = [_attended(each[:, None], v[:, head], visible, None) for head, each in enumerate(scores)]
    return (np.concatenate(mixed, axis=1).reshape(len(q), -1),)


def latent_attention(op: ops.LatentAttention, step: Step) -> tuple[Array, ...]:
    q, latent, k_rope = (step.values[name] for name in op.inputs)
    count, content, rotated = op.num_heads, op.content_dim, op.cache.rope_dim
    q = q.reshape(len(q), count, content + rotated)
    turned = _rotated(q[..., content:].reshape(len(q), -1), rotated, op.rope, step).reshape(len(q), count, rotated)
    past = step.caches.get(op.cache.name, (latent[:0], k_rope[:0]))
    new = (latent, _rotated(k_rope, rotated, op.rope, step))
    latents, k_turned = (np.concatenate(pair) for pair in zip(past, new, strict=True))
    step.caches[op.cache.name] = (latents, k_turned)
    expand = step.weight(op.expand).reshape(count, -1, op.cache.rank)
    expand_k, expand_v = expand[:, :content], expand[:, content:]  # (num_heads, content_dim or value_dim, rank)
    visible = np.arange(len(latents)) <= np.arange(step.start, step.start + len(q))[:, None]
    out = np.empty((len(q), count, op.value_dim), q.dtype)
    for head in range(count):
        if step.phase is Phase.DECODE:  # to the latents themselves
            scores = (q[:, head, :content] @ expand_k[head]) @ latents.T
            values = latents
        else:
            scores = q[:, head, :content] @ (latents @ expand_k[head].T).T
            values = latents @ expand_v[head].T
        scores = (scores + turned[:, head] @ k_turned.T) * q.dtype.type(op.scale)
        mixed = _attended(scores[:, None], values, visible, None)[:, 0]
        out[:, head] = mixed @ expand_v[head].T if step.phase is Phase.DECODE else mixed
    return (out.reshape(len(q), -1),)


def _rotated(x: Array, head_dim: int, spec: RopeSpec, step: Step) -> Array:
    """Each head's pairs (a, b) turned by the row's angle: (a cos - b sin, b cos + a sin)."""
    factors = None if spec.factors is None else step.weight(spec.factors)
    positions = np.arange(step.start, step.start + len(x), dtype=np.float64)
    angles = positions[:, None] * inverse_frequencies(spec, factors)  # (num_rows, dim / 2)
    cos, sin = ((turn(angles) * spec.magnitude).astype(x.dtype)[:, None, :] for turn in (np.cos, np.sin))
    heads = x.reshape(len(x), -1, head_dim)
    half = spec.dim // 2
    first, second = (
        (slice(0, half), slice(half, spec.dim))
        if spec.pairing == "half"
        else (slice(0, spec.dim, 2), slice(1, spec.dim, 2))
    )
    a, b = heads[..., first], heads[..., second]
    out = heads.copy()
    out[..., first] = a * cos - b * sin
    out[..., second] = b * cos + a * sin
    return out.reshape(x.shape)


def _appended(cache: CacheSpec, written: list[Array], step: Step) -> Cached:
    """Keys and values of all tokens so far, the step's included, which also go to the cache."""
    new = tuple(x.reshape(len(x), cache.num_kv_heads, cache.head_dim) for x in written)
    if cache.name in step.caches:
        new = tuple(np.concatenate(pair) for pair in zip(step.caches[cache.name], new, strict=True))
    step.caches[cache.name] = new
    return new


def _visible(start: int, end: int, cache: CacheSpec) -> npt.NDArray[np.bool_]:
    """Which of the keys 0 .. end each row start .. end sees, (end - start, end)."""
    rows, keys = np.arange(start, end)[:, None], np.arange(end)
    visible: npt.NDArray[np.bool_] = keys <= rows
    if cache.window is not None:
        visible = visible & (keys > rows - cache.window)
    if cache.segment is not None:
        visible = visible & (keys // cache.segment == rows // cache.segment)
    return visible


def _scores(q: Array, keys: Array, cap: float | None) -> Array:
    """Of one KV head's scaled queries (num_rows, num_heads, head_dim) and keys (num_keys, head_dim), capped."""
    num_rows, num_heads, head_dim = q.shape
    scores: Array = (q.reshape(-1, head_dim) @ keys.T).reshape(num_rows, num_heads, -1)
    return scores if cap is None else soft_capped(scores, cap)


def _attended(scores: Array, values: Array, visible: npt.NDArray[np.bool_], sinks: Array | None) -> Array:
    """Values (num_keys, head_dim) mixed by the softmax of scores (num_rows, num_heads, num_keys) and of sinks."""
    num_rows, num_heads, _ = scores.shape
    scores = np.where(visible[:, None, :], scores, -np.inf)
    top = scores.max(axis=2, keepdims=True)
    if sinks is not None:
        top = np.maximum(top, sinks[:, None])
    weights = np.exp(scores - top)
    total = weights.sum(axis=2, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None] - top)
    mixed = (weights.reshape(num_rows * num_heads, -1) @ values).reshape(num_rows, num_heads, -1)
    attended: Array = mixed / total
    return attended
