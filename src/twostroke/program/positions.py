"""Ops that depend on a row's position alone: learned positions, a scale that grows. Part of the vocabulary of `ops`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from twostroke.program.op import Op, require
from twostroke.program.values import Value, Weight


@dataclass(frozen=True, slots=True)
class AddPosition(Op):
    """Each row plus the table's row of its position in the request (GPT-2), the first of which is `first`; positions
    end where the table does."""

    kind: ClassVar[str] = "add_position"
    output: str
    input: str
    table: Weight
    first: int = 0

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.table,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x = values[self.input]
        require(len(self.table.shape) == 2 and self.table.shape[1] == x.dim, f"{self.table} has no rows like {x}")
        return (Value(self.output, x.dim, x.rows),)


@dataclass(frozen=True, slots=True)
class ScaleByPosition(Op):
    """x * (1 + strength * log(1 + floor((position + shift) / period))): queries of Llama 4's layers without rotation,
    with a shift of 1, and of Ministral 3, with none (Nakanishi 2025, "Scalable-Softmax")."""

    kind: ClassVar[str] = "scale_by_position"
    output: str
    input: str
    period: int
    strength: float
    shift: int = 0

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        require(self.period > 0, f"a period of {self.period}")
        return (Value(self.output, values[self.input].dim, values[self.input].rows),)
