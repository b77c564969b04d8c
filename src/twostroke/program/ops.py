"""The op vocabulary: each op's fields and its shape rule. Owns neither cost, nor arithmetic, nor native code.

An op names the values it reads and writes; a value is a float32 matrix (num_rows, dim). Weights carry the shape the
program expects of them. Every op kind has four faces, each in one place:

    shape      `shapes()` here           cost    program/cost.py
    reference  program/reference.py      native  native/lower.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from twostroke.program.elementwise import (
    Activate,
    Activation,
    Add,
    Columns,
    Gated,
    GatedActivation,
    Scale,
    ScaleByWeight,
    SigmoidGate,
    SoftCap,
)
from twostroke.program.encoder import AddVector, EncoderAttention
from twostroke.program.experts import Experts
from twostroke.program.latent import LatentAttention
from twostroke.program.op import Op, ProgramError, require
from twostroke.program.positions import AddPosition, ScaleByPosition
from twostroke.program.recurrent import Convolution, GatedDelta
from twostroke.program.values import CacheSpec, Norm, RopeSpec, Rows, Value, Weight

__all__ = [
    "CACHED",
    "OP_KINDS",
    "Activate",
    "Activation",
    "Add",
    "AddPosition",
    "AddVector",
    "Attention",
    "CachedOp",
    "Columns",
    "Convolution",
    "Embed",
    "EncoderAttention",
    "Experts",
    "Gated",
    "GatedActivation",
    "GatedDelta",
    "LatentAttention",
    "Linear",
    "Normalize",
    "Op",
    "OutputRows",
    "ProgramError",
    "Reorder",
    "Rope",
    "Scale",
    "ScaleByPosition",
    "ScaleByWeight",
    "SigmoidGate",
    "SoftCap",
]


@dataclass(frozen=True, slots=True)
class Embed(Op):
    """Row `token_id` of an embedding table for every token of the step."""

    kind: ClassVar[str] = "embed"
    output: str
    weight: Weight

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.weight,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        require(len(self.weight.shape) == 2, f"{self.weight} is not a table")
        return (Value(self.output, self.weight.shape[1]),)


@dataclass(frozen=True, slots=True)
class Normalize(Op):
    """Each row normalised; with `group_dim`, each stretch of that many elements (a head) by itself.

    The norm's weight then has group_dim elements, the same for every group, or is (num_groups, group_dim); without
    groups it has as many as the row.
    """

    kind: ClassVar[str] = "norm"
    output: str
    input: str
    norm: Norm
    group_dim: int | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return self.norm.weights

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x = values[self.input]
        group = x.dim if self.group_dim is None else self.group_dim
        require(x.dim % group == 0, f"{x} does not divide into groups of {group}")
        each = () if self.group_dim is None else (x.dim // group, group)
        for weight in self.norm.weights:
            require(weight.shape in ((group,), each), f"{weight} does not scale {x}")
        return (Value(self.output, x.dim, x.rows),)


@dataclass(frozen=True, slots=True)
class Linear(Op):
    """One or more matrices times the same input: output_i = x @ matrix_i.T + bias_i.

    Families write it with one matrix; passes add the rest. `norm` is applied to the input first. `residual` is added
    to the (only) output. With `gate`, there are two matrices and one output, as `Gated` combines them.
    """

    kind: ClassVar[str] = "linear"
    results: tuple[str, ...]
    input: str
    matrices: tuple[Weight, ...]
    biases: tuple[Weight | None, ...]
    norm: Norm | None = None
    residual: str | None = None
    gate: GatedActivation | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.results

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,) if self.residual is None else (self.input, self.residual)

    @property
    def weights(self) -> tuple[Weight, ...]:
        norm = () if self.norm is None else self.norm.weights
        return norm + self.matrices + tuple(bias for bias in self.biases if bias is not None)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x = values[self.input]
        require(len(self.biases) == len(self.matrices), "a linear needs one bias slot a matrix")
        for matrix, bias in zip(self.matrices, self.biases, strict=True):
            require(matrix.shape[1:] == (x.dim,), f"{matrix} does not multiply {x}")
            require(bias is None or bias.shape == matrix.shape[:1], f"{bias} does not fit {matrix}")
        for weight in () if self.norm is None else self.norm.weights:
            require(weight.shape == (x.dim,), f"{weight} does not scale {x}")
        dims = [matrix.shape[0] for matrix in self.matrices]
        if self.gate is not None:
            require(len(dims) == 2 and dims[0] == dims[1], "a gated linear has two matrices of one shape")
            dims = dims[:1]
        require(len(dims) == len(self.results), "a linear has one output a matrix")
        if self.residual is not None:
            require(len(dims) == 1 and values[self.residual].dim == dims[0], f"residual {self.residual} does not fit")
        return tuple(Value(name, dim, x.rows) for name, dim in zip(self.results, dims, strict=True))


@dataclass(frozen=True, slots=True)
class Rope(Op):
    """Rotates every head of the input by the row's position."""

    kind: ClassVar[str] = "rope"
    output: str
    input: str
    head_dim: int
    rope: RopeSpec

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return () if self.rope.factors is None else (self.rope.factors,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x = values[self.input]
        require(x.dim % self.head_dim == 0, f"{x} does not divide into heads of {self.head_dim}")
        _require_rope(self.rope, self.head_dim)
        return (Value(self.output, x.dim, x.rows),)


@dataclass(frozen=True, slots=True)
class Attention(Op):
    """Softmax attention (Vaswani et al. 2017) of each row over its request's cached keys, its own included.

    Writes k and v of the step's rows to the cache, then reads; without k and v it reads what another op wrote to the
    same cache (Gemma 3n). Query head h uses KV head h // (num_heads / num_kv_heads) (Ainslie et al. 2023). Causal;
    window and segment are the cache's. With `rope`, q and k are rotated first. With `soft_cap`, scaled scores s become
    soft_cap * tanh(s / soft_cap) (Gemma 2). `sinks` (num_heads,) are one more score
    of each head in the softmax, not scaled, which has no value (Xiao et al. 2023; gpt-oss).
    """

    kind: ClassVar[str] = "attention"
    output: str
    q: str
    k: str | None
    v: str | None
    num_heads: int
    cache: CacheSpec
    scale: float
    rope: RopeSpec | None = None
    soft_cap: float | None = None
    sinks: Weight | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(name for name in (self.q, self.k, self.v) if name is not None)

    @property
    def weights(self) -> tuple[Weight, ...]:
        factors = None if self.rope is None else self.rope.factors
        return tuple(weight for weight in (factors, self.sinks) if weight is not None)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        q, *written = (values[name] for name in self.inputs)
        kv_dim = self.cache.num_kv_heads * self.cache.head_dim
        require(self.num_heads % self.cache.num_kv_heads == 0, "query heads do not divide among KV heads")
        require(q.dim == self.num_heads * self.cache.head_dim, f"{q} is not {self.num_heads} heads")
        require(len(written) in (0, 2), "keys are written with values or not at all")
        for x in written:
            require(x.dim == kv_dim, f"{x} is not {self.cache.num_kv_heads} KV heads")
        require(self.cache.window is None or self.cache.segment is None, f"{self.cache.name} has window and segment")
        require(self.sinks is None or self.sinks.shape == (self.num_heads,), f"{self.sinks} is not one a head")
        require(self.soft_cap is None or self.soft_cap > 0, f"a soft cap of {self.soft_cap}")
        if self.rope is not None:
            _require_rope(self.rope, self.cache.head_dim)
        return (Value(self.output, q.dim, q.rows),)


@dataclass(frozen=True, slots=True)
class Reorder(Op):
    """The elements of each row in another order: element i of the output is element order[i] of the input."""

    kind: ClassVar[str] = "reorder"
    output: str
    input: str
    order: Weight

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.order,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x = values[self.input]
        require(self.order.shape == (x.dim,), f"{self.order} does not order {x}")
        return (Value(self.output, x.dim, x.rows),)


@dataclass(frozen=True, slots=True)
class OutputRows(Op):
    """Only the rows whose outputs the step was asked for; what follows runs on them alone."""

    kind: ClassVar[str] = "output_rows"
    output: str
    input: str

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x = values[self.input]
        require(x.rows is Rows.TOKENS, f"{x} has been reduced to output rows already")
        return (Value(self.output, x.dim, Rows.OUTPUTS),)


def _require_rope(rope: RopeSpec, head_dim: int) -> None:
    require(rope.dim % 2 == 0 and rope.dim <= head_dim, "rotary dim is odd or beyond the head")
    require(rope.divisors is None or len(rope.divisors) == rope.dim // 2, "RoPE divisors are not one a pair")


CachedOp = Attention | LatentAttention | Convolution | GatedDelta
CACHED = (Attention, LatentAttention, Convolution, GatedDelta)
OP_KINDS: tuple[type[Op], ...] = (
    *(Embed, Normalize, Linear, Rope, Attention, Experts, Reorder, OutputRows),
    *(Add, Gated, Activate, Scale, SoftCap, SigmoidGate),
    *(LatentAttention, Convolution, GatedDelta, AddPosition, ScaleByPosition, ScaleByWeight),
    *(EncoderAttention, AddVector, Columns),
)
