"""What every op means, in NumPy. Owns the arithmetic of each op kind; the order of ops is the executor's (`reference`).

Written for clarity: one function an op, `op, step -> outputs`, in the step's dtype throughout.
"""

from collections.abc import Mapping

import numpy as np

from twostroke.program import ops
from twostroke.program.activations import ACTIVATIONS, GATED, Array, sigmoid, soft_capped
from twostroke.program.reference_attention import attention, encoder_attention, latent_attention, rope
from twostroke.program.reference_recurrent import convolution, gated_delta
from twostroke.program.reference_step import Rule, Step
from twostroke.program.routing import route
from twostroke.program.values import Norm


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


def experts(op: ops.Experts, step: Step) -> tuple[Array, ...]:
    x = step.values[op.input]
    choice_bias = None if op.routed.choice_bias is None else step.weight(op.routed.choice_bias)
    ids, shares = route(step.values[op.router], op.routed, choice_bias)
    if op.routed.expert_scales is not None:
        shares = shares * step.weight(op.routed.expert_scales)[ids]
    matrices = [step.weight(matrix) for matrix in op.matrices]
    biases = None if op.biases is None else [step.weight(bias) for bias in op.biases]
    out = np.zeros_like(x)
    for expert in range(op.routed.num_experts):
        rows, places = np.nonzero(ids == expert)
        if not len(rows):
            continue
        gate, up, down = (matrix[expert].T for matrix in matrices)
        gate_bias, up_bias, down_bias = (0, 0, 0) if biases is None else (bias[expert] for bias in biases)
        share = shares[rows, places][:, None]
        y = x[rows] * share if op.routed.weighs_input else x[rows]
        y = GATED[op.activation](y @ gate + gate_bias, y @ up + up_bias) @ down + down_bias
        out[rows] += y if op.routed.weighs_input else y * share
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


def scale_by_weight(op: ops.ScaleByWeight, step: Step) -> tuple[Array, ...]:
    return (step.values[op.input] * step.weight(op.weight),)


def soft_cap(op: ops.SoftCap, step: Step) -> tuple[Array, ...]:
    return (soft_capped(step.values[op.input], op.cap),)


def sigmoid_gate(op: ops.SigmoidGate, step: Step) -> tuple[Array, ...]:
    return (step.values[op.input] * sigmoid(step.values[op.gate]),)


def reorder(op: ops.Reorder, step: Step) -> tuple[Array, ...]:
    return (step.values[op.input][:, step.weight(op.order).astype(np.int64)],)


def columns(op: ops.Columns, step: Step) -> tuple[Array, ...]:
    return (step.values[op.input][:, op.first : op.first + op.dim],)


def add_position(op: ops.AddPosition, step: Step) -> tuple[Array, ...]:
    x, table, start = step.values[op.input], step.weight(op.table), op.first + step.start
    if start + len(x) > len(table):
        raise IndexError(f"position {start + len(x) - 1} is beyond the {len(table)} that {op.table} has")
    return (x + table[start : start + len(x)],)


def add_vector(op: ops.AddVector, step: Step) -> tuple[Array, ...]:
    return (step.values[op.input] + step.weight(op.table)[op.index],)


def scale_by_position(op: ops.ScaleByPosition, step: Step) -> tuple[Array, ...]:
    x = step.values[op.input]
    positions = np.arange(step.start, step.start + len(x), dtype=np.float64)
    factors = 1 + op.strength * np.log1p(np.floor((positions + op.shift) / op.period))
    return (x * factors[:, None].astype(x.dtype),)


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
    ops.LatentAttention: latent_attention,
    ops.Convolution: convolution,
    ops.GatedDelta: gated_delta,
    ops.AddPosition: add_position,
    ops.ScaleByPosition: scale_by_position,
    ops.ScaleByWeight: scale_by_weight,
    ops.EncoderAttention: encoder_attention,
    ops.AddVector: add_vector,
    ops.Columns: columns,
}


def _normed(x: Array, norm: Norm, step: Step) -> Array:
    """Normalised over the last axis."""
    if norm.kind == "layer":
        x = x - np.mean(x, axis=-1, keepdims=True)
    normed: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(norm.eps))
    if norm.weight is not None:
        normed = normed * (step.weight(norm.weight) + x.dtype.type(norm.offset))
    return normed if norm.bias is None else normed + step.weight(norm.bias)
