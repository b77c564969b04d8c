"""What each op costs. Owns one rule an op kind, of coefficients (see `cost` for what is counted); evaluates none."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from twostroke.program import ops
from twostroke.program.cost_terms import Resource, Term, Unit
from twostroke.program.values import Norm, Rows, Value, Weight

Values = Mapping[str, Value]
Rule = Callable[[Any, Values], Iterator[Term]]

_ACTIVATION = 5  # FLOPs an element of a gated activation: exponential, sum, quotient and two products


def op_terms(op: ops.Op, values: Values) -> Iterator[Term]:
    """The cost terms of one op: its rule's, and the activations it reads and writes."""
    yield from COST_RULES[type(op)](op, values)
    for name in (*op.inputs, *op.outputs):
        unit = Unit.OUTPUT if isinstance(op, ops.OutputRows) else _row_unit(values[name])
        yield Term(Resource.ACTIVATION_BYTES, unit, values[name].dim, "activation")


def _row_unit(value: Value) -> Unit:
    return Unit.OUTPUT if value.rows is Rows.OUTPUTS else Unit.ROW


def _step_unit(value: Value) -> Unit:
    return Unit.OUTPUT_STEP if value.rows is Rows.OUTPUTS else Unit.STEP


def _whole(weight: Weight, value: Value) -> Term:
    return Term(Resource.WEIGHT_BYTES, _step_unit(value), weight.num_elements, weight.name)


def _flops(value: Value, count: float) -> Term:
    return Term(Resource.FLOPS, _row_unit(value), count)


def _norm_flops(norm: Norm) -> int:
    """FLOPs an element: square, sum, two products; for layers also the mean taken off."""
    return (4 if norm.kind == "rms" else 6) + (norm.bias is not None)


def _embed(op: ops.Embed, values: Values) -> Iterator[Term]:
    yield Term(Resource.WEIGHT_BYTES, Unit.ROW, op.weight.shape[1], op.weight.name)


def _normalize(op: ops.Normalize, values: Values) -> Iterator[Term]:
    x = values[op.input]
    for weight in op.weights:
        yield _whole(weight, x)
    yield _flops(x, _norm_flops(op.norm) * x.dim)


def _linear(op: ops.Linear, values: Values) -> Iterator[Term]:
    x = values[op.input]
    for weight in op.weights:
        yield _whole(weight, x)
    yield _flops(x, sum(2 * matrix.num_elements for matrix in op.matrices))
    yield _flops(x, sum(bias.num_elements for bias in op.biases if bias is not None))
    if op.norm is not None:
        yield _flops(x, _norm_flops(op.norm) * x.dim)
    if op.residual is not None:
        yield _flops(x, values[op.residual].dim)
    if op.gate is not None:
        yield _flops(x, _ACTIVATION * op.matrices[0].shape[0])


def _rope(op: ops.Rope, values: Values) -> Iterator[Term]:
    x = values[op.input]
    yield _flops(x, 3 * (x.dim // op.head_dim) * op.rope.dim)


def _attention(op: ops.Attention, values: Values) -> Iterator[Term]:
    q, cache = values[op.q], op.cache
    if op.rope is not None:
        yield _flops(q, 3 * (op.num_heads + cache.num_kv_heads) * op.rope.dim)
    if op.sinks is not None:
        yield _whole(op.sinks, q)
        yield _flops(q, 2 * op.num_heads)
    per_key = 4 * cache.head_dim + (4 if op.soft_cap is None else 7)
    yield Term(Resource.FLOPS, Unit.ROW_CONTEXT, per_key * op.num_heads, scope=cache.window)
    yield Term(Resource.KV_BYTES, Unit.ROW, cache.elements_per_token, "kv")
    yield Term(Resource.KV_BYTES, Unit.CHUNK_CONTEXT, cache.elements_per_token, "kv", cache.window)


def _add(op: ops.Add, values: Values) -> Iterator[Term]:
    yield _flops(values[op.left], values[op.left].dim)


def _gated(op: ops.Gated, values: Values) -> Iterator[Term]:
    yield _flops(values[op.gate], _ACTIVATION * values[op.gate].dim)


def _activate(op: ops.Activate, values: Values) -> Iterator[Term]:
    yield _flops(values[op.input], (_ACTIVATION - 1) * values[op.input].dim)


def _scale(op: ops.Scale, values: Values) -> Iterator[Term]:
    yield _flops(values[op.input], values[op.input].dim)


def _soft_cap(op: ops.SoftCap, values: Values) -> Iterator[Term]:
    yield _flops(values[op.input], 3 * values[op.input].dim)


def _sigmoid_gate(op: ops.SigmoidGate, values: Values) -> Iterator[Term]:
    yield _flops(values[op.input], values[op.input].dim + 3)


def _experts(op: ops.Experts, values: Values) -> Iterator[Term]:
    """A row pays for the experts it chooses; a step reads each expert that any of its rows chooses once."""
    x, routed = values[op.input], op.routed
    scope = (routed.num_experts, routed.top_k)
    for weight in op.weights:
        yield Term(Resource.WEIGHT_BYTES, Unit.EXPERTS, weight.num_elements / routed.num_experts, weight.name, scope)
    products = sum(2 * matrix.num_elements // routed.num_experts for matrix in op.matrices)
    biases = sum(bias.num_elements // routed.num_experts for bias in op.biases or ())
    gated = _ACTIVATION * op.ffn_dim + 2 * x.dim  # and the weighted sum
    yield _flops(x, routed.top_k * (products + biases + gated))
    yield _flops(x, 4 * routed.num_experts)


def _reorder(op: ops.Reorder, values: Values) -> Iterator[Term]:
    yield _whole(op.order, values[op.input])


def _output_rows(op: ops.OutputRows, values: Values) -> Iterator[Term]:
    return iter(())


COST_RULES: Mapping[type[ops.Op], Rule] = {
    ops.Embed: _embed,
    ops.Normalize: _normalize,
    ops.Linear: _linear,
    ops.Rope: _rope,
    ops.Attention: _attention,
    ops.Experts: _experts,
    ops.Add: _add,
    ops.Gated: _gated,
    ops.Activate: _activate,
    ops.Scale: _scale,
    ops.SoftCap: _soft_cap,
    ops.SigmoidGate: _sigmoid_gate,
    ops.Reorder: _reorder,
    ops.OutputRows: _output_rows,
}
