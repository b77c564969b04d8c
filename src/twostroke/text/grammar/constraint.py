"""Constraint: where one answer stands in its grammar. Owns the tokens allowed next; the engine masks with them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from twostroke.errors import InvalidRequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher

_PLACE = re.compile(r"^at \d+\(\d+\): ")
_COPY = re.compile(r"\s*\d*\s*\|.*|\s*\^\s*$")


class Constraint:
    """The state of one answer. For one thread at a time; a copy starts where its original stands."""

    def __init__(self, matcher: "LLMatcher", name: str) -> None:
        self._matcher = matcher
        self._name = name

    def fill_mask(self, mask: npt.NDArray[np.uint32]) -> None:
        """Writes which tokens may come next, bit t % 32 of word t // 32 for token t. `mask` is (ceil(vocab_size / 32),)
        of the model's vocabulary; ids that only the model has are forbidden.

        Raises InvalidRequestError where the grammar takes more work at this step than is allowed.
        """
        with named_panics(self._name):
            allowed = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)[: len(mask)]
        self._check()
        mask[: len(allowed)] = allowed
        mask[len(allowed) :] = 0

    def accept(self, token_id: int) -> None:
        """Takes the token chosen. Raises InvalidRequestError where the grammar forbids it, or is too complex."""
        with named_panics(self._name):
            is_taken = self._matcher.consume_token(token_id)
        if not is_taken:
            self._check()

    @property
    def is_stopped(self) -> bool:
        """The text is complete: nothing but an end can follow."""
        return bool(self._matcher.is_stopped())

    @property
    def is_accepting(self) -> bool:
        """The text so far is complete, though more may follow."""
        return bool(self._matcher.is_accepting())

    def copy(self) -> "Constraint":
        """An independent state, for another answer under the same grammar."""
        return Constraint(self._matcher.deep_copy(), self._name)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InvalidRequestError(f"{self._name}: {one_line(self._matcher.get_error())}")


@contextmanager
def named_panics(name: str) -> Iterator[None]:
    """A panic in llguidance, which is no Exception in Python, as an InvalidRequestError that names the field: version
    1.9 panics over some texts that are not ASCII in what it would refuse."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise InvalidRequestError(f"{name} cannot be enforced: it is malformed") from None


def one_line(message: str) -> str:
    """What a message of llguidance says, without its place in, and its copy of, the grammar."""
    message = _PLACE.sub("", message.replace("<non-verbose/>", "")).replace("failed to compile JSON schema: ", "")
    kept = (line.strip() for line in message.splitlines() if not _COPY.match(line))
    return " ".join(line for line in kept if line)[:300].replace("NoExtensionBias", "no text satisfies it")
