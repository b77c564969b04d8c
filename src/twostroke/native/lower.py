"""Lowering: a fused Program and its weights bound to the compiled executor. Owns the native face of every op.

Each rule adds one instruction. Weights are packed as they are first used, and the source's pages are released: a
weight is in memory once.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twostroke.errors import UnsupportedModelError
from twostroke.models.load import MATRIX_TYPES
from twostroke.native import _core
from twostroke.program import ops
from twostroke.program.passes import plan_arena
from twostroke.program.program import Program
from twostroke.program.rope import inverse_frequencies
from twostroke.program.values import Norm, RopeSpec, Rows, Weight
from twostroke.weights.codebooks import codebook
from twostroke.weights.dequantize import dequantize
from twostroke.weights.source import WeightSource
from twostroke.weights.tensor_types import TensorType

CODEBOOKS: Mapping[TensorType, str] = {
    TensorType.IQ2_XXS: "iq2_xxs",
    TensorType.IQ2_XS: "iq2_xs",
    TensorType.IQ2_S: "iq2_s",
    TensorType.IQ3_XXS: "iq3_xxs",
    TensorType.IQ3_S: "iq3_s",
    TensorType.IQ1_S: "iq1",
    TensorType.IQ1_M: "iq1",
}


class Lowering:
    """Adds a program's values, weights and ops to a core executor, each weight and table once."""

    def __init__(self, core: _core.Executor, program: Program, source: WeightSource) -> None:
        self.core = core
        self.program = program
        self._source = source
        self._matrices: dict[str, int] = {}
        self._codebooks: dict[str, int] = {}
        self._vectors: dict[str, int] = {}
        self._ropes: dict[RopeSpec, int] = {}
        arena = plan_arena(program)
        self.values = {
            name: core.add_value(value.dim, arena.offsets[name], value.rows is Rows.OUTPUTS)
            for name, value in program.values.items()
        }
        self.groups = {cache.name: index for index, group in enumerate(program.cache_groups) for cache in group.caches}

    def run(self) -> None:
        """Lower every op. Raises UnsupportedModelError, by name, for an op or tensor type without a native face."""
        for op in self.program.ops:
            rule = NATIVE[type(op)]
            if isinstance(rule, str):
                raise UnsupportedModelError(f"the native executor cannot run op {op.kind!r}: {rule}")
            rule(self, op)
        self.core.finish(self.values[self.program.outputs["logits"]])

    def matrix(self, weight: Weight) -> int:
        if weight.name not in self._matrices:
            info = self._source.info(weight.name)
            if info.type not in MATRIX_TYPES:
                raise UnsupportedModelError(
                    f"tensor {weight.name!r} has type {info.type.name}, which has no kernel yet"
                )
            rows, cols = weight.shape
            data = self._source.data(weight.name)
            self._matrices[weight.name] = self.core.add_matrix(
                int(info.type), rows, cols, data, self.codebook(info.type)
            )
            self._source.release(weight.name)
        return self._matrices[weight.name]

    def codebook(self, kind: TensorType) -> int:
        """Id of the codebook that a tensor type looks its values up in, -1 for none."""
        name = CODEBOOKS.get(kind)
        if name is None:
            return -1
        if name not in self._codebooks:
            self._codebooks[name] = self.core.add_codebook(np.ascontiguousarray(codebook(name), np.int8))
        return self._codebooks[name]

    def vector(self, weight: Weight | None) -> int:
        """Id of a float32 vector, -1 for none."""
        if weight is None:
            return -1
        if weight.name not in self._vectors:
            self._vectors[weight.name] = self.core.add_vector(self._floats(weight))
        return self._vectors[weight.name]

    def norm(self, norm: Norm | None) -> tuple[int, float]:
        if norm is None:
            return (-1, 0.0)
        if norm.kind != "rms" or norm.bias is not None or norm.offset:
            raise UnsupportedModelError(f"the native executor cannot run the norm of {norm.weight.name!r} yet")
        return (self.vector(norm.weight), norm.eps)

    def rope(self, spec: RopeSpec | None) -> int:
        if spec is None:
            return -1
        if spec.magnitude != 1.0:
            raise UnsupportedModelError("the native executor cannot scale RoPE's cosines and sines yet")
        if spec not in self._ropes:
            factors = None if spec.factors is None else self._floats(spec.factors)
            frequencies = np.ascontiguousarray(inverse_frequencies(spec, factors))
            self._ropes[spec] = self.core.add_rope(frequencies, spec.pairing == "interleaved")
        return self._ropes[spec]

    def _floats(self, weight: Weight) -> np.ndarray[Any, np.dtype[np.float32]]:
        info = self._source.info(weight.name)
        return np.ascontiguousarray(dequantize(self._source.data(weight.name), info.type, info.shape))


Rule = Callable[[Lowering, Any], None]


def _embed(low: Lowering, op: ops.Embed) -> None:
    low.core.add_embed(low.values[op.output], low.matrix(op.weight))


def _normalize(low: Lowering, op: ops.Normalize) -> None:
    if op.group_dim is not None:
        raise UnsupportedModelError("the native executor cannot normalise head by head yet")
    low.core.add_rms_norm(low.values[op.output], low.values[op.input], *low.norm(op.norm))


def _linear(low: Lowering, op: ops.Linear) -> None:
    if op.gate not in (None, "silu"):
        raise UnsupportedModelError(f"the native executor cannot gate by {op.gate!r} yet")
    norm, eps = low.norm(op.norm)
    low.core.add_linear(
        [low.values[name] for name in op.results],
        low.values[op.input],
        [low.matrix(matrix) for matrix in op.matrices],
        [low.vector(bias) for bias in op.biases],
        norm,
        eps,
        -1 if op.residual is None else low.values[op.residual],
        op.gate is not None,
    )


def _rope(low: Lowering, op: ops.Rope) -> None:
    low.core.add_rope_op(low.values[op.output], low.values[op.input], op.head_dim, low.rope(op.rope))


def _attention(low: Lowering, op: ops.Attention) -> None:
    if op.soft_cap is not None or op.sinks is not None:
        raise UnsupportedModelError("the native executor cannot run attention with a soft cap or sinks yet")
    low.core.add_attention(
        low.values[op.output],
        low.values[op.q],
        low.values[op.k],
        low.values[op.v],
        op.num_heads,
        op.cache.num_kv_heads,
        op.cache.head_dim,
        op.scale,
        op.cache.window or 0,
        low.groups[op.cache.name],
        low.rope(op.rope),
    )


def _add(low: Lowering, op: ops.Add) -> None:
    low.core.add_add(low.values[op.output], low.values[op.left], low.values[op.right])


def _gated(low: Lowering, op: ops.Gated) -> None:
    if op.activation != "silu":
        raise UnsupportedModelError(f"the native executor cannot gate by {op.activation!r} yet")
    low.core.add_swiglu(low.values[op.output], low.values[op.gate], low.values[op.up])


def _output_rows(low: Lowering, op: ops.OutputRows) -> None:
    low.core.add_output_rows(low.values[op.output], low.values[op.input])


NATIVE: Mapping[type[ops.Op], Rule | str] = {
    ops.Embed: _embed,
    ops.Normalize: _normalize,
    ops.Linear: _linear,
    ops.Rope: _rope,
    ops.Attention: _attention,
    ops.Add: _add,
    ops.Gated: _gated,
    ops.OutputRows: _output_rows,
    ops.Experts: "mixtures of experts have no kernel yet",
    ops.Activate: "activations without a gate have no kernel yet",
    ops.Scale: "scaled values have no kernel yet",
    ops.SoftCap: "soft caps have no kernel yet",
    ops.SigmoidGate: "gated shared experts have no kernel yet",
}
