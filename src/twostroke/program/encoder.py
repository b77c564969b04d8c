"""Ops of encoders: all rows see each other, and nothing of a request is kept. Part of the vocabulary of `ops`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from twostroke.program.op import Op, require
from twostroke.program.values import Value, Weight


@dataclass(frozen=True, slots=True)
class EncoderAttention(Op):
    """Softmax attention (Vaswani et al. 2017) of each row over all rows of its request, those after it too (BERT).

    A request is one chunk from its first row on; there is no cache. All heads have keys and values of their own.
    """

    kind: ClassVar[str] = "encoder_attention"
    output: str
    q: str
    k: str
    v: str
    num_heads: int
    scale: float

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.q, self.k, self.v)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        q, k, v = (values[name] for name in self.inputs)
        require(q.dim % self.num_heads == 0, f"{q} does not divide into {self.num_heads} heads")
        require(q.dim == k.dim == v.dim, f"{k} and {v} are not heads like those of {q}")
        return (Value(self.output, q.dim, q.rows),)


@dataclass(frozen=True, slots=True)
class AddVector(Op):
    """Each row plus row `index` of a table: BERT's embedding of the kind of text, the same for all of a request."""

    kind: ClassVar[str] = "add_vector"
    output: str
    input: str
    table: Weight
    index: int = 0

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.table,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x = values[self.input]
        require(len(self.table.shape) == 2 and self.table.shape[1] == x.dim, f"{self.table} has no rows like {x}")
        require(0 <= self.index < self.table.shape[0], f"{self.table} has no row {self.index}")
        return (Value(self.output, x.dim, x.rows),)
