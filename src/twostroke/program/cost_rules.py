"""What each op costs. Owns one rule an op kind, of coefficients (see `cost` for what is counted); evaluates none."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from twostroke.program import ops
from twostroke.program.cost_cached import attention, convolution, encoder_attention, gated_delta, latent_attention
from twostroke.program.cost_terms import Resource, Term, Unit, flops, row_unit, whole
from twostroke.program.values import Norm, Value

Values = Mapping[str, Value]
Rule = Callable[[Any, Values], Iterator[Term]]

_ACTIVATION = 5  # FLOPs an element of a gated activation: exponential, sum, quotient and two products


def op_terms(op: ops.Op, values: Values) -> Iterator[Term]:
    """The cost terms of one op: its rule's, and the activations it reads and writes."""
    yield from COST_RULES[type(op)](op, values)
    for name in (*op.inputs, *op.outputs):
        unit = Unit.OUTPUT if isinstance(op, ops.OutputRows) else row_unit(values[name])
        dim = op.dim if isinstance(op, ops.Columns) else values[name].dim
        yield Term(Resource.ACTIVATION_BYTES, unit, dim, "activation")


def _norm_flops(norm: Norm) -> int:
    """FLOPs an element: square, sum, two products; for layers also the mean taken off."""
    return (4 if norm.kind == "rms" else 6) + (norm.bias is not None) - (norm.weight is None)


def _embed(op: ops.Embed, values: Values) -> Iterator[Term]:
    yield Term(Resource.WEIGHT_BYTES, Unit.ROW, op.weight.shape[1], op.weight.name)


def _normalize(op: ops.Normalize, values: Values) -> Iterator[Term]:
    x = values[op.input]
    for weight in op.weights:
        yield whole(weight, x)
    yield flops(x, _norm_flops(op.norm) * x.dim)


def _linear(op: ops.Linear, values: Values) -> Iterator[Term]:
    x = values[op.input]
    for weight in op.weights:
        yield whole(weight, x)
    yield flops(x, sum(2 * matrix.num_elements for matrix in op.matrices))
    yield flops(x, sum(bias.num_elements for bias in op.biases if bias is not None))
    if op.norm is not None:
        yield flops(x, _norm_flops(op.norm) * x.dim)
    if op.residual is not None:
        yield flops(x, values[op.residual].dim)
    if op.gate is not None:
        yield flops(x, _ACTIVATION * op.matrices[0].shape[0])


def _rope(op: ops.Rope, values: Values) -> Iterator[Term]:
    x = values[op.input]
    yield flops(x, 3 * (x.dim // op.head_dim) * op.rope.dim)


def _add(op: ops.Add, values: Values) -> Iterator[Term]:
    yield flops(values[op.left], values[op.left].dim)


def _gated(op: ops.Gated, values: Values) -> Iterator[Term]:
    yield flops(values[op.gate], _ACTIVATION * values[op.gate].dim)


def _activate(op: ops.Activate, values: Values) -> Iterator[Term]:
    yield flops(values[op.input], (_ACTIVATION - 1) * values[op.input].dim)


def _scale(op: ops.Scale, values: Values) -> Iterator[Term]:
    yield flops(values[op.input], values[op.input].dim)


def _scale_by_weight(op: ops.ScaleByWeight, values: Values) -> Iterator[Term]:
    yield whole(op.weight, values[op.input])
    yield flops(values[op.input], values[op.input].dim)


def _soft_cap(op: ops.SoftCap, values: Values) -> Iterator[Term]:
    yield flops(values[op.input], 3 * values[op.input].dim)


def _sigmoid_gate(op: ops.SigmoidGate, values: Values) -> Iterator[Term]:
    yield flops(values[op.input], values[op.input].dim + 3 * values[op.gate].dim)


def _experts(op: ops.Experts, values: Values) -> Iterator[Term]:
    """A row pays for the experts it chooses; a step reads each expert that any of its rows chooses once."""
    x, routed = values[op.input], op.routed
    scope = (routed.num_experts, routed.top_k)
    for weight in (*op.matrices, *(op.biases or ())):
        yield Term(Resource.WEIGHT_BYTES, Unit.EXPERTS, weight.num_elements / routed.num_experts, weight.name, scope)
    for weight in routed.weights:
        yield whole(weight, x)
    products = sum(2 * matrix.num_elements // routed.num_experts for matrix in op.matrices)
    biases = sum(bias.num_elements // routed.num_experts for bias in op.biases or ())
    gated = _ACTIVATION * op.ffn_dim + 2 * x.dim  # and the weighted sum
    yield flops(x, routed.top_k * (products + biases + gated))
    yield flops(x, 4 * routed.num_experts)


def _columns(op: ops.Columns, values: Values) -> Iterator[Term]:
    yield from ()


def _add_position(op: ops.AddPosition, values: Values) -> Iterator[Term]:
    x = values[op.input]
    yield Term(Resource.WEIGHT_BYTES, row_unit(x), x.dim, op.table.name)
    yield flops(x, x.dim)


def _add_vector(op: ops.AddVector, values: Values) -> Iterator[Term]:
    x = values[op.input]
    yield Term(Resource.WEIGHT_BYTES, Unit.STEP, x.dim, op.table.name)
    yield flops(x, x.dim)


def _scale_by_position(op: ops.ScaleByPosition, values: Values) -> Iterator[Term]:
    yield flops(values[op.input], values[op.input].dim + 5)


def _reorder(op: ops.Reorder, values: Values) -> Iterator[Term]:
    yield whole(op.order, values[op.input])


def _output_rows(op: ops.OutputRows, values: Values) -> Iterator[Term]:
    return iter(())


COST_RULES: Mapping[type[ops.Op], Rule] = {
    ops.Embed: _embed,
    ops.Normalize: _normalize,
    ops.Linear: _linear,
    ops.Rope: _rope,
    ops.Attention: attention,
    ops.Experts: _experts,
    ops.Add: _add,
    ops.Gated: _gated,
    ops.Activate: _activate,
    ops.Scale: _scale,
    ops.SoftCap: _soft_cap,
    ops.SigmoidGate: _sigmoid_gate,
    ops.Reorder: _reorder,
    ops.OutputRows: _output_rows,
    ops.LatentAttention: latent_attention,
    ops.Convolution: convolution,
    ops.GatedDelta: gated_delta,
    ops.AddPosition: _add_position,
    ops.ScaleByPosition: _scale_by_position,
    ops.ScaleByWeight: _scale_by_weight,
    ops.EncoderAttention: encoder_attention,
    ops.AddVector: _add_vector,
    ops.Columns: _columns,
}
