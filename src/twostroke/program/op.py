"""What every op is: names it reads and writes, weights it uses, a shape rule. Owns no op kind (see `ops`)."""

from collections.abc import Mapping
from typing import ClassVar

from twostroke.program.values import Value, Weight


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


def require(condition: bool, what: str) -> None:
    """Raises ProgramError that says `what` does not fit."""
    if not condition:
        raise ProgramError(what)
