"""The op vocabulary: each op's fields and its shape rule. Owns neither cost, nor arithmetic, nor native code.

An op names the values it reads and writes; a value is a float32 matrix (num_rows, dim). Weights carry the shape the
program expects of them. Every op kind has four faces, each in one place:

    shape      `shapes()` here           cost    program/cost.py
    reference  program/reference.py      native  native/lower.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from twostroke.program.values import CacheSpec, Norm, RopeSpec, Rows, Value, Weight


class ProgramError(ValueError):
    """A family built an op whose parts do not fit: a defect of the family, not of a user's input."""


class Op:
    """One op: what it reads and writes by name, the weights it uses, and its shape rule."""

    __slots__ = ()
    kind: ClassVar[str]
    output: str

    @property
    def inputs(self) -> tuple[str, ...]:
        return ()

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.output,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return ()

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        """The values this op writes, given those before it. Raises ProgramError where parts do not fit."""
        raise NotImplementedError(self.kind)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ProgramError(what)


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
        _require(len(self.weight.shape) == 2, f"{self.weight} is not a table")
        return (Value(self.output, self.weight.shape[1]),)


@dataclass(frozen=True, slots=True)
class RmsNorm(Op):
    """Each row normalised by its root mean square and scaled."""

    kind: ClassVar[str] = "rms_norm"
    output: str
    input: str
    norm: Norm

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.norm.weight,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x = values[self.input]
        _require(self.norm.weight.shape == (x.dim,), f"{self.norm.weight} does not scale {x}")
        return (Value(self.output, x.dim, x.rows),)


@dataclass(frozen=True, slots=True)
class Linear(Op):
    """One or more matrices times the same input: output_i = x @ matrix_i.T + bias_i.

    Families write it with one matrix; passes add the rest. `norm` is applied to the input first. `residual` is added
    to the (only) output. With `gate`, there are two matrices and one output: silu(x @ gate.T) * (x @ up.T).
    """

    kind: ClassVar[str] = "linear"
    results: tuple[str, ...]
    input: str
    matrices: tuple[Weight, ...]
    biases: tuple[Weight | None, ...]
    norm: Norm | None = None
    residual: str | None = None
    gate: Literal["silu"] | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.results

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,) if self.residual is None else (self.input, self.residual)

    @property
    def weights(self) -> tuple[Weight, ...]:
        norm = () if self.norm is None else (self.norm.weight,)
        return norm + self.matrices + tuple(bias for bias in self.biases if bias is not None)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x = values[self.input]
        _require(len(self.biases) == len(self.matrices), "a linear needs one bias slot a matrix")
        for matrix, bias in zip(self.matrices, self.biases, strict=True):
            _require(matrix.shape[1:] == (x.dim,), f"{matrix} does not multiply {x}")
            _require(bias is None or bias.shape == matrix.shape[:1], f"{bias} does not fit {matrix}")
        if self.norm is not None:
            _require(self.norm.weight.shape == (x.dim,), f"{self.norm.weight} does not scale {x}")
        dims = [matrix.shape[0] for matrix in self.matrices]
        if self.gate is not None:
            _require(len(dims) == 2 and dims[0] == dims[1], "a gated linear has two matrices of one shape")
            dims = dims[:1]
        _require(len(dims) == len(self.results), "a linear has one output a matrix")
        if self.residual is not None:
            _require(len(dims) == 1 and values[self.residual].dim == dims[0], f"residual {self.residual} does not fit")
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
        _require(x.dim % self.head_dim == 0, f"{x} does not divide into heads of {self.head_dim}")
        _require(self.rope.dim % 2 == 0 and self.rope.dim <= self.head_dim, "rotary dim is odd or beyond the head")
        return (Value(self.output, x.dim, x.rows),)


@dataclass(frozen=True, slots=True)
class Attention(Op):
    """Softmax attention (Vaswani et al. 2017) of each row over its request's cached keys, its own included.

    Writes k and v of the step's rows to the cache, then reads. Query head h uses KV head h // (num_heads /
    num_kv_heads) (Ainslie et al. 2023). Causal; the window is the cache's. With `rope`, q and k are rotated first.
    """

    kind: ClassVar[str] = "attention"
    output: str
    q: str
    k: str
    v: str
    num_heads: int
    cache: CacheSpec
    scale: float
    rope: RopeSpec | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.q, self.k, self.v)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return () if self.rope is None or self.rope.factors is None else (self.rope.factors,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        q, k, v = values[self.q], values[self.k], values[self.v]
        kv_dim = self.cache.num_kv_heads * self.cache.head_dim
        _require(self.num_heads % self.cache.num_kv_heads == 0, "query heads do not divide among KV heads")
        _require(q.dim == self.num_heads * self.cache.head_dim, f"{q} is not {self.num_heads} heads")
        _require(k.dim == kv_dim and v.dim == kv_dim, f"{k}, {v} are not {self.cache.num_kv_heads} KV heads")
        return (Value(self.output, q.dim, q.rows),)


@dataclass(frozen=True, slots=True)
class Add(Op):
    """Elementwise sum of two values."""

    kind: ClassVar[str] = "add"
    output: str
    left: str
    right: str

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.left, self.right)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        left, right = values[self.left], values[self.right]
        _require((left.dim, left.rows) == (right.dim, right.rows), f"{left} and {right} differ in shape")
        return (Value(self.output, left.dim, left.rows),)


@dataclass(frozen=True, slots=True)
class SwiGLU(Op):
    """silu(gate) * up (Shazeer 2020), elementwise."""

    kind: ClassVar[str] = "swiglu"
    output: str
    gate: str
    up: str

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.gate, self.up)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        gate, up = values[self.gate], values[self.up]
        _require((gate.dim, gate.rows) == (up.dim, up.rows), f"{gate} and {up} differ in shape")
        return (Value(self.output, gate.dim, gate.rows),)


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
        _require(x.rows is Rows.TOKENS, f"{x} has been reduced to output rows already")
        return (Value(self.output, x.dim, Rows.OUTPUTS),)


OP_KINDS: tuple[type[Op], ...] = (Embed, RmsNorm, Linear, Rope, Attention, Add, SwiGLU, OutputRows)
