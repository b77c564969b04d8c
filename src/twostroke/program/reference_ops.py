"""What every op means, in NumPy. Owns the arithmetic of each op kind; the order of ops is the executor's (`reference`).

Written for clarity: one function an op, `op, step -> outputs`, in the step's dtype throughout.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.program import ops
from twostroke.program.activations import ACTIVATIONS, GATED, Array, route, sigmoid, soft_capped
from twostroke.program.rope import inverse_frequencies
from twostroke.program.values import CacheSpec, Norm, RopeSpec, Weight

IntArray = npt.NDArray[np.integer[Any]]
Cached = tuple[Array, Array]  # keys and values, each (num_tokens, num_kv_heads, head_dim)

# Scores are computed for this many rows at a time, which bounds their memory.
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Step:
    """What ops read and write while a step runs: `token_ids` at positions `start` ... of one request."""

    token_ids: IntArray  # (num_tokens,)
    start: int
    num_outputs: int
    weight: Callable[[Weight], Array]
    values: dict[str, Array]
    caches: dict[str, Cached]


Rule = Callable[[Any, Step], tuple[Array, ...]]


def embed(op: ops.Embed, step: Step) -> tuple[Array, ...]:
    return (step.weight(op.weight)[step.token_ids],)


def normalize(op: ops.Normalize, step: Step) -> tuple[Array, ...]:
    x = step.values[op.input]
    groups = x if op.group_dim is None else x.reshape(len(x), -1, op.group_dim)
    return (_normed(groups, op.norm, step).reshape(x.shape),)


def linear(op: ops.Linear, step: Step) -> tuple[Array, ...]:
    x = step.values[op.input]
    if op.norm is not None:
        x = _normed(x, op.norm, step)
    results: list[Array] = []
    for matrix, bias in zip(op.matrices, op.biases, strict=True):
        y = x @ step.weight(matrix).T  # (num_rows, out_dim)
        results.append(y if bias is None else y + step.weight(bias))
    if op.gate is not None:
        gate, up = results
        results = [GATED[op.gate](gate, up)]
    if op.residual is not None:
        results = [step.values[op.residual] + results[0]]
    return tuple(results)


def rope(op: ops.Rope, step: Step) -> tuple[Array, ...]:
    return (_rotated(step.values[op.input], op.head_dim, op.rope, step),)


def attention(op: ops.Attention, step: Step) -> tuple[Array, ...]:
    q, k, v = (step.values[name] for name in (op.q, op.k, op.v))
    cache = op.cache
    if op.rope is not None:
        q, k = (_rotated(x, cache.head_dim, op.rope, step) for x in (q, k))
    keys, values = _appended(cache, k, v, step)
    q = q.reshape(len(q), cache.num_kv_heads, -1, cache.head_dim)  # (num_rows, num_kv_heads, heads a KV head, head_dim)
    sinks = None if op.sinks is None else step.weight(op.sinks).reshape(cache.num_kv_heads, -1)
    out = np.empty_like(q)
    for first in range(0, len(q), _ROWS_AT_ONCE):
        rows = slice(first, min(first + _ROWS_AT_ONCE, len(q)))
        visible = _visible(step.start + first, step.start + rows.stop, cache.window)
        for head in range(cache.num_kv_heads):
            end = visible.shape[1]
            scores = _scores(q[rows, head] * q.dtype.type(op.scale), keys[:end, head], op.soft_cap)
            sink = None if sinks is None else sinks[head]
            out[rows, head] = _attended(scores, values[:end, head], visible, sink)
    return (out.reshape(len(out), -1),)


def experts(op: ops.Experts, step: Step) -> tuple[Array, ...]:
    x = step.values[op.input]
    ids, shares = route(step.values[op.router], op.routed)
    matrices = [step.weight(matrix) for matrix in op.matrices]
    biases = None if op.biases is None else [step.weight(bias) for bias in op.biases]
    out = np.zeros_like(x)
    for expert in range(op.routed.num_experts):
        rows, places = np.nonzero(ids == expert)
        if not len(rows):
            continue
        gate, up, down = (matrix[expert].T for matrix in matrices)
        gate_bias, up_bias, down_bias = (0, 0, 0) if biases is None else (bias[expert] for bias in biases)
        inner = GATED[op.activation](x[rows] @ gate + gate_bias, x[rows] @ up + up_bias)
        out[rows] += shares[rows, places][:, None] * (inner @ down + down_bias)
    return (out,)


def add(op: ops.Add, step: Step) -> tuple[Array, ...]:
    return (step.values[op.left] + step.values[op.right],)


def gated(op: ops.Gated, step: Step) -> tuple[Array, ...]:
    return (GATED[op.activation](step.values[op.gate], step.values[op.up]),)


def activate(op: ops.Activate, step: Step) -> tuple[Array, ...]:
    return (ACTIVATIONS[op.activation](step.values[op.input]),)


def scale(op: ops.Scale, step: Step) -> tuple[Array, ...]:
    x = step.values[op.input]
    return (x * x.dtype.type(op.factor),)


def soft_cap(op: ops.SoftCap, step: Step) -> tuple[Array, ...]:
    return (soft_capped(step.values[op.input], op.cap),)


def sigmoid_gate(op: ops.SigmoidGate, step: Step) -> tuple[Array, ...]:
    return (step.values[op.input] * sigmoid(step.values[op.gate]),)


def reorder(op: ops.Reorder, step: Step) -> tuple[Array, ...]:
    return (step.values[op.input][:, step.weight(op.order).astype(np.int64)],)


def output_rows(op: ops.OutputRows, step: Step) -> tuple[Array, ...]:
    x = step.values[op.input]
    return (x[len(x) - step.num_outputs :],)


REFERENCE: Mapping[type[ops.Op], Rule] = {
    ops.Embed: embed,
    ops.Normalize: normalize,
    ops.Linear: linear,
    ops.Rope: rope,
    ops.Attention: attention,
    ops.Experts: experts,
    ops.Add: add,
    ops.Gated: gated,
    ops.Activate: activate,
    ops.Scale: scale,
    ops.SoftCap: soft_cap,
    ops.SigmoidGate: sigmoid_gate,
    ops.Reorder: reorder,
    ops.OutputRows: output_rows,
}


def _normed(x: Array, norm: Norm, step: Step) -> Array:
    """Normalised over the last axis."""
    if norm.kind == "layer":
        x = x - np.mean(x, axis=-1, keepdims=True)
    mean_square = np.mean(x * x, axis=-1, keepdims=True)
    weight = step.weight(norm.weight) + x.dtype.type(norm.offset)
    normed: Array = x / np.sqrt(mean_square + x.dtype.type(norm.eps)) * weight
    return normed if norm.bias is None else normed + step.weight(norm.bias)


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


def _appended(cache: CacheSpec, k: Array, v: Array, step: Step) -> Cached:
    """Keys and values of all tokens so far, the step's included, which also go to the cache."""
    k, v = (x.reshape(len(x), cache.num_kv_heads, cache.head_dim) for x in (k, v))
    if cache.name in step.caches:
        keys, values = step.caches[cache.name]
        k, v = np.concatenate((keys, k)), np.concatenate((values, v))
    step.caches[cache.name] = (k, v)
    return k, v


def _visible(start: int, end: int, window: int | None) -> npt.NDArray[np.bool_]:
    """Which of the keys 0 .. end each row start .. end sees, (end - start, end)."""
    rows, keys = np.arange(start, end)[:, None], np.arange(end)
    visible: npt.NDArray[np.bool_] = keys <= rows
    return visible if window is None else visible & (keys > rows - window)


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
