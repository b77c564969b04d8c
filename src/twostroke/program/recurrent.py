"""Ops whose memory of a request has a fixed size: causal convolution, the gated delta rule. Part of `ops`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from twostroke.program.op import Op, require
from twostroke.program.values import StateSpec, Value, Weight


@dataclass(frozen=True, slots=True)
class Convolution(Op):
    """silu of each channel's causal convolution over the latest rows of its request, its own included; before the
    first token there are zeros. `weight` is (dim, width), latest row last; the state is the width - 1 rows before."""

    kind: ClassVar[str] = "convolution"
    output: str
    input: str
    weight: Weight
    cache: StateSpec

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.weight,)

    @property
    def width(self) -> int:
        """Rows that each output row sees."""
        return self.weight.shape[1]

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x = values[self.input]
        require(len(self.weight.shape) == 2 and self.weight.shape[0] == x.dim, f"{self.weight} does not convolve {x}")
        require(self.cache.state_elements == (self.width - 1) * x.dim, f"{self.cache.name} is not the rows before {x}")
        return (Value(self.output, x.dim, x.rows),)


@dataclass(frozen=True, slots=True)
class GatedDelta(Op):
    """Linear attention by the gated delta rule (Yang et al. 2024, "Gated Delta Networks").

    Value head h keeps a matrix S (key_dim, value_dim), zero at first, and uses key head h // (num_value_heads /
    num_key_heads). With q and k of unit length, q over sqrt(key_dim), beta = sigmoid(write) and
    a = exp(-exp(log_decay) * softplus(decay + decay_bias)), each row does
    S <- a S + k (beta (v - a S^T k))^T and gives S^T q.

    Decode does just that. Prefill may take `chunk` rows at once, as products of matrices whose results are the same.
    """

    kind: ClassVar[str] = "gated_delta"
    output: str
    q: str
    k: str
    v: str
    write: str
    decay: str
    log_decay: Weight
    decay_bias: Weight
    num_key_heads: int
    num_value_heads: int
    cache: StateSpec
    chunk: int = 64

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.q, self.k, self.v, self.write, self.decay)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.log_decay, self.decay_bias)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        q, k, v, write, decay = (values[name] for name in self.inputs)
        heads = self.num_value_heads
        require(heads % self.num_key_heads == 0, "value heads do not divide among key heads")
        require(q.dim == k.dim and q.dim % self.num_key_heads == 0, f"{q}, {k} are not {self.num_key_heads} heads")
        require(v.dim % heads == 0, f"{v} is not {heads} heads")
        require(write.dim == decay.dim == heads, f"{write}, {decay} are not one a value head")
        require(self.log_decay.shape == self.decay_bias.shape == (heads,), f"{self.log_decay} is not one a value head")
        size = q.dim // self.num_key_heads * v.dim
        require(self.cache.state_elements == size, f"{self.cache.name} is not {heads} matrices")
        return (Value(self.output, v.dim, v.rows),)
