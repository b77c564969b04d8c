"""What a reader of one call says, in order. Owns the readers' interface only."""

from dataclasses import dataclass
from typing import Protocol

from twostroke.text.answer.marks import Piece


@dataclass(frozen=True, slots=True)
class Named:
    """A call's name is known."""

    name: str


@dataclass(frozen=True, slots=True)
class Argued:
    """A piece of its arguments, as JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Its arguments are complete."""


Step = Named | Argued | Ended


class NotACall(Exception):  # noqa: N818 - no error: the text only looked like a call
    """What was read cannot be a call; nothing of it has been named yet."""


class CallReader(Protocol):
    """Reads one call or more, from after the mark that begins them to before the one that ends them."""

    @property
    def is_inside(self) -> bool:
        """Within a value: a mark that comes now is its text."""

    @property
    def rest(self) -> str | None:
        """The text after the last call, once nothing more of it can belong to a call."""

    def push(self, piece: Piece) -> list[Step]:
        """Raises NotACall, but never after the first Named."""
