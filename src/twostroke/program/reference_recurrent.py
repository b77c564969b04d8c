"""What recurrent ops mean, in NumPy: a row after the other. Owns the arithmetic of `Convolution` and `GatedDelta`."""

import numpy as np

from twostroke.program import ops
from twostroke.program.activations import Array, sigmoid, silu
from twostroke.program.reference_step import Step

_LEAST_SQUARE = 1e-6  # added to a query's or key's squared length


def convolution(op: ops.Convolution, step: Step) -> tuple[Array, ...]:
    x, weight = step.values[op.input], step.weight(op.weight)
    before = step.caches.get(op.cache.name, (np.zeros((op.width - 1, x.shape[1]), x.dtype),))[0]
    rows = np.concatenate((before, x))
    step.caches[op.cache.name] = (rows[len(x) :],)
    out = np.zeros_like(x)
    for place in range(op.width):
        out += rows[place : place + len(x)] * weight[:, place]
    return (silu(out),)


def gated_delta(op: ops.GatedDelta, step: Step) -> tuple[Array, ...]:
    q, k, v, write, decay = (step.values[name] for name in op.inputs)
    shared = op.num_value_heads // op.num_key_heads
    q, k = (np.repeat(_of_length_1(x.reshape(len(x), op.num_key_heads, -1)), shared, axis=1) for x in (q, k))
    v = v.reshape(len(v), op.num_value_heads, -1)
    q = q * q.dtype.type(q.shape[-1] ** -0.5)
    softplus = np.logaddexp(decay + step.weight(op.decay_bias), v.dtype.type(0))
    kept = np.exp(-np.exp(step.weight(op.log_decay)) * softplus)  # (num_rows, num_value_heads)
    beta = sigmoid(write)
    size = (op.num_value_heads, k.shape[-1], v.shape[-1])
    (state,) = step.caches.get(op.cache.name, (np.zeros(size, v.dtype),))
    out = np.empty_like(v)
    for row in range(len(v)):
        state = state * kept[row][:, None, None]
        known = np.einsum("hkv,hk->hv", state, k[row])
        change = (v[row] - known) * beta[row][:, None]
        state = state + k[row][:, :, None] * change[:, None, :]
        out[row] = np.einsum("hkv,hk->hv", state, q[row])
    step.caches[op.cache.name] = (state,)
    return (out.reshape(len(out), -1),)


def _of_length_1(x: Array) -> Array:
    squares = (x * x).sum(axis=-1, keepdims=True) + x.dtype.type(_LEAST_SQUARE)
    of_length: Array = x / np.sqrt(squares)
    return of_length
