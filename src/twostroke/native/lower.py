"""Lowering: a fused Program and its weights bound to the compiled executor. Owns the native face of every op.

Each rule adds one instruction. Weights are packed in the order of their first use, some millions of bytes at a time,
and the source's pages are then released: a weight is in memory once.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.errors import UnsupportedModelError
from twostroke.models.load import MATRIX_TYPES
from twostroke.native import _core
from twostroke.native.refusals import refuse_unsupported
from twostroke.program import ops
from twostroke.program.passes import plan_arena
from twostroke.program.program import Program
from twostroke.program.rope import inverse_frequencies
from twostroke.program.values import Norm, RopeSpec, Rows, Weight
from twostroke.weights.codebooks import codebook
from twostroke.weights.source import WeightSource
from twostroke.weights.tensor_types import TensorType

Bytes = npt.NDArray[np.uint8]
_STRETCH_BYTES = 8 * 2**20  # that are packed, and then given back, at a time
_LANES = 16  # matrix rows that are packed together
CODEBOOKS: Mapping[TensorType, str] = {
    TensorType.IQ2_XXS: "iq2_xxs",
    TensorType.IQ2_XS: "iq2_xs",
    TensorType.IQ2_S: "iq2_s",
    TensorType.IQ3_XXS: "iq3_xxs",
    TensorType.IQ3_S: "iq3_s",
    TensorType.IQ1_S: "iq1",
    TensorType.IQ1_M: "iq1",
}


GATES: Mapping[str, int] = {
    "silu": _core.GATE_SILU,
    "gelu": _core.GATE_GELU,
    "gelu_tanh": _core.GATE_GELU_TANH,
    "swiglu_oai": _core.GATE_SWIGLU_OAI,
}
ACTIVATIONS: Mapping[str, int] = {
    "silu": _core.SILU,
    "gelu": _core.GELU,
    "gelu_tanh": _core.GELU_TANH,
    "relu2": _core.SQUARED_RELU,
}


class Lowering:
    """Adds a program's values, weights and ops to a core executor, each weight and table once."""

    def __init__(self, core: _core.Executor, program: Program, source: WeightSource) -> None:
        self.core = core
        self.program = program
        self._source = source
        self._matrices: dict[str, int] = {}
        self._unpacked: list[tuple[int, int, int, Bytes]] = []  # matrix, first row, number of rows, and their blocks
        self._waiting: dict[str, None] = {}  # names of the tensors that those are of
        self._codebooks: dict[str, int] = {}
        self._vectors: dict[tuple[str, float], int] = {}
        self._ropes: dict[RopeSpec, int] = {}
        arena = plan_arena(program)
        self.values = {
            name: core.add_value(value.dim, arena.offsets[name], value.rows is Rows.OUTPUTS)
            for name, value in program.values.items()
        }
        self.groups = {cache.name: index for index, group in enumerate(program.cache_groups) for cache in group.caches}

    def run(self) -> None:
        """Lower every op. Raises UnsupportedModelError, by name, for an op or tensor type without a native face."""
        refuse_unsupported(self.program)
        for op in self.program.ops:
            NATIVE[type(op)](self, op)
        self._pack_waiting()
        self.core.finish(self.values[sampled_output(self.program)])

    def matrix(self, weight: Weight) -> int:
        if weight.name not in self._matrices:
            self._matrices[weight.name] = self._pack(weight, self._source.data(weight.name))
        return self._matrices[weight.name]

    def expert_matrices(self, weight: Weight) -> list[int]:
        """Ids of a (num_experts, rows, cols) tensor's matrices, each packed by itself."""
        parts = self._source.data(weight.name).reshape(weight.shape[0], -1)
        return [self._pack(weight, part) for part in parts]

    def _pack(self, weight: Weight, data: Bytes) -> int:
        """One (rows, cols) matrix of `weight`, whose shape it has at the end."""
        kind = self._source.info(weight.name).type
        if kind not in MATRIX_TYPES:
            raise UnsupportedModelError(f"tensor {weight.name!r} has type {kind.name}, which has no kernel")
        rows, cols = weight.shape[-2:]
        matrix = self.core.add_matrix(int(kind), rows, cols, self.codebook(kind))
        by_row = data.reshape(rows, -1)
        stretch = max(1, _STRETCH_BYTES // by_row.shape[1] // _LANES) * _LANES
        for first in range(0, rows, stretch):
            some = by_row[first : first + stretch]
            self._unpacked.append((matrix, first, len(some), some.reshape(-1)))
            self._waiting[weight.name] = None
            if sum(len(blocks) for *_, blocks in self._unpacked) >= _STRETCH_BYTES:
                self._pack_waiting()
        return matrix

    def _pack_waiting(self) -> None:
        """Packs what waits, all at once, so that threads are called together seldom; and gives back the pages."""
        self.core.pack(self._unpacked)
        for name in self._waiting:
            self._source.release(name)
        self._unpacked.clear()
        self._waiting.clear()

    def codebook(self, kind: TensorType) -> int:
        """Id of the codebook that a tensor type looks its values up in, -1 for none."""
        name = CODEBOOKS.get(kind)
        if name is None:
            return -1
        if name not in self._codebooks:
            self._codebooks[name] = self.core.add_codebook(np.ascontiguousarray(codebook(name), np.int8))
        return self._codebooks[name]

    def vector(self, weight: Weight | None, offset: float = 0.0) -> int:
        """Id of a tensor flattened to float32, `offset` added; -1 for none."""
        if weight is None:
            return -1
        if (weight.name, offset) not in self._vectors:
            values = self._floats(weight)
            if offset:
                values = values + np.float32(offset)
            self._vectors[weight.name, offset] = self.core.add_vector(np.ascontiguousarray(values.reshape(-1)))
        return self._vectors[weight.name, offset]

    def norm(self, norm: Norm | None) -> tuple[int, int, float, bool]:
        if norm is None:
            return (-1, -1, 0.0, False)
        weight, bias = self.vector(norm.weight, norm.offset), self.vector(norm.bias)
        return (weight, bias, norm.eps, norm.kind == "layer")

    def rope(self, spec: RopeSpec | None) -> int:
        if spec is None:
            return -1
        if spec not in self._ropes:
            factors = None if spec.factors is None else self._floats(spec.factors)
            frequencies = np.ascontiguousarray(inverse_frequencies(spec, factors))
            self._ropes[spec] = self.core.add_rope(frequencies, spec.pairing == "interleaved", spec.magnitude)
        return self._ropes[spec]

    def indices(self, weight: Weight) -> npt.NDArray[np.int32]:
        """A tensor of integers."""
        return self._source.data(weight.name).view(np.int32)

    def _floats(self, weight: Weight) -> np.ndarray[Any, np.dtype[np.float32]]:
        """A copy of a vector's values. All but matrices are float32: `models.model` has checked it."""
        return self._source.data(weight.name).view(np.float32).reshape(weight.shape).copy()


def sampled_output(program: Program) -> str:
    """The value that tokens are drawn from: the logits. Of a program without them, its hidden rows, whose tokens mean
    nothing: it is run for those rows alone."""
    return program.outputs.get("logits") or program.outputs["hidden"]


Rule = Callable[[Lowering, Any], None]


def _embed(low: Lowering, op: ops.Embed) -> None:
    low.core.add_embed(low.values[op.output], low.matrix(op.weight))


def _normalize(low: Lowering, op: ops.Normalize) -> None:
    dim = op.group_dim or low.program.values[op.input].dim
    low.core.add_normalize(low.values[op.output], low.values[op.input], low.norm(op.norm), dim)


def _linear(low: Lowering, op: ops.Linear) -> None:
    low.core.add_linear(
        [low.values[name] for name in op.results],
        low.values[op.input],
        [low.matrix(matrix) for matrix in op.matrices],
        [low.vector(bias) for bias in op.biases],
        low.norm(op.norm),
        -1 if op.residual is None else low.values[op.residual],
        -1 if op.gate is None else GATES[op.gate],
    )


def _rope(low: Lowering, op: ops.Rope) -> None:
    low.core.add_rope_op(low.values[op.output], low.values[op.input], op.head_dim, low.rope(op.rope))


def _attention(low: Lowering, op: ops.Attention) -> None:
    q, k, v = (low.values[name] for name in op.inputs)
    low.core.add_attention(
        low.values[op.output],
        q,
        k,
        v,
        op.num_heads,
        op.cache.num_kv_heads,
        op.cache.head_dim,
        op.scale,
        op.soft_cap or 0.0,
        low.vector(op.sinks),
        op.cache.window or 0,
        low.groups[op.cache.name],
        low.rope(op.rope),
    )


def _experts(low: Lowering, op: ops.Experts) -> None:
    gates, ups, downs = (low.expert_matrices(matrix) for matrix in op.matrices)
    gate_bias, up_bias, down_bias = op.biases or (None, None, None)
    low.core.add_experts(
        low.values[op.output],
        low.values[op.input],
        low.values[op.router],
        gates,
        ups,
        downs,
        (low.vector(gate_bias), low.vector(up_bias), low.vector(down_bias)),
        op.routed.top_k,
        op.routed.kind == "softmax_topk" and not op.routed.renormalize,
        op.routed.scale,
        GATES[op.activation],
    )


def _elementwise(low: Lowering, kind: int, output: str, a: str, b: str | None = None, constant: float = 0.0) -> None:
    low.core.add_elementwise(kind, low.values[output], low.values[a], -1 if b is None else low.values[b], constant)


def _add(low: Lowering, op: ops.Add) -> None:
    _elementwise(low, _core.ADD, op.output, op.left, op.right)


def _gated(low: Lowering, op: ops.Gated) -> None:
    _elementwise(low, GATES[op.activation], op.output, op.gate, op.up)


def _activate(low: Lowering, op: ops.Activate) -> None:
    _elementwise(low, ACTIVATIONS[op.activation], op.output, op.input)


def _scale(low: Lowering, op: ops.Scale) -> None:
    _elementwise(low, _core.SCALE, op.output, op.input, constant=op.factor)


def _soft_cap(low: Lowering, op: ops.SoftCap) -> None:
    _elementwise(low, _core.SOFT_CAP, op.output, op.input, constant=op.cap)


def _sigmoid_gate(low: Lowering, op: ops.SigmoidGate) -> None:
    _elementwise(low, _core.SIGMOID_GATE, op.output, op.input, op.gate)


def _reorder(low: Lowering, op: ops.Reorder) -> None:
    low.core.add_reorder(low.values[op.output], low.values[op.input], low.indices(op.order))


def _output_rows(low: Lowering, op: ops.OutputRows) -> None:
    low.core.add_output_rows(low.values[op.output], low.values[op.input])


NATIVE: Mapping[type[ops.Op], Rule] = {
    ops.Embed: _embed,
    ops.Normalize: _normalize,
    ops.Linear: _linear,
    ops.Rope: _rope,
    ops.Attention: _attention,
    ops.Add: _add,
    ops.Gated: _gated,
    ops.Reorder: _reorder,
    ops.OutputRows: _output_rows,
    ops.Experts: _experts,
    ops.Activate: _activate,
    ops.Scale: _scale,
    ops.SoftCap: _soft_cap,
    ops.SigmoidGate: _sigmoid_gate,
}
