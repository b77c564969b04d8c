"""Ops on the elements of rows, without weights: sums, activations, gates, factors. Part of the vocabulary of `ops`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from twostroke.program.op import Op, require
from twostroke.program.values import Value, Weight

Activation = Literal["silu", "gelu", "gelu_tanh", "relu2"]
GatedActivation = Literal["silu", "gelu", "gelu_tanh", "swiglu_oai"]


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
        require((left.dim, left.rows) == (right.dim, right.rows), f"{left} and {right} differ in shape")
        return (Value(self.output, left.dim, left.rows),)


@dataclass(frozen=True, slots=True)
class Columns(Op):
    """Elements `first` to `first` + `dim` of each row: of inputs computed for all layers at once, one layer's."""

    kind: ClassVar[str] = "columns"
    output: str
    input: str
    first: int
    dim: int

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x = values[self.input]
        require(
            0 <= self.first < self.first + self.dim <= x.dim, f"{x} has no {self.dim} elements from {self.first} on"
        )
        return (Value(self.output, self.dim, x.rows),)


@dataclass(frozen=True, slots=True)
class Gated(Op):
    """activation(gate) * up (Shazeer 2020), elementwise.

    "gelu" is exact (with erf), "gelu_tanh" its approximation by tanh (Hendrycks and Gimpel 2016). "swiglu_oai" is that
    of gpt-oss: gate at most 7, up within -7 and 7, then gate * sigmoid(1.702 gate) * (up + 1).
    """

    kind: ClassVar[str] = "gated"
    output: str
    gate: str
    up: str
    activation: GatedActivation

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.gate, self.up)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        gate, up = values[self.gate], values[self.up]
        require((gate.dim, gate.rows) == (up.dim, up.rows), f"{gate} and {up} differ in shape")
        return (Value(self.output, gate.dim, gate.rows),)


@dataclass(frozen=True, slots=True)
class Activate(Op):
    """activation(x), elementwise; "relu2" is max(x, 0)^2 (So et al. 2021)."""

    kind: ClassVar[str] = "activate"
    output: str
    input: str
    activation: Activation

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        return (Value(self.output, values[self.input].dim, values[self.input].rows),)


@dataclass(frozen=True, slots=True)
class Scale(Op):
    """x * factor, elementwise: scaled embeddings, residuals and logits."""

    kind: ClassVar[str] = "scale"
    output: str
    input: str
    factor: float

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        return (Value(self.output, values[self.input].dim, values[self.input].rows),)


@dataclass(frozen=True, slots=True)
class ScaleByWeight(Op):
    """x * weight, which is one number (the scale of each layer's output in Gemma 4)."""

    kind: ClassVar[str] = "scale_by_weight"
    output: str
    input: str
    weight: Weight

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.weight,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        require(self.weight.shape == (1,), f"{self.weight} is not one number")
        return (Value(self.output, values[self.input].dim, values[self.input].rows),)


@dataclass(frozen=True, slots=True)
class SoftCap(Op):
    """cap * tanh(x / cap), elementwise (Gemma 2)."""

    kind: ClassVar[str] = "soft_cap"
    output: str
    input: str
    cap: float

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        require(self.cap > 0, f"a soft cap of {self.cap}")
        return (Value(self.output, values[self.input].dim, values[self.input].rows),)


@dataclass(frozen=True, slots=True)
class SigmoidGate(Op):
    """x * sigmoid(gate), where gate has one element a row (the shared expert of Qwen2-MoE) or as many as x (what
    attention gives in Qwen3-Next)."""

    kind: ClassVar[str] = "sigmoid_gate"
    output: str
    input: str
    gate: str

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input, self.gate)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x, gate = values[self.input], values[self.gate]
        require(gate.rows is x.rows and gate.dim in (1, x.dim), f"{gate} is neither one gate a row of {x} nor one each")
        return (Value(self.output, x.dim, x.rows),)
