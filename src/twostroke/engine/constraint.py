"""Constraint: which tokens a request may get next. Owns the interface and how masks are made; knows no grammar."""

from typing import Protocol

import numpy as np

from twostroke.errors import ConstraintError
from twostroke.native.batch import Mask


class Constraint(Protocol):
    """State of one request's output language, such as a grammar. The engine's thread alone calls it.

    It is told of each new token once, in order, also where the request is preempted and its rows are computed again.
    What it raises ends its own request, with that error, and no other.
    """

    @property
    def is_stopped(self) -> bool:
        """Nothing may follow: the request ends with finish reason "stop"."""

    def fill_mask(self, mask: Mask) -> None:
        """Sets bit t % 32 of word t // 32 for each token t that may come next.

        `mask` is (ceil(vocab_size / 32),) of the model's vocabulary, all zero; bits beyond it are ignored.
        """

    def accept(self, token_id: int) -> None:
        """The token was chosen, and is not a stop id that ended the request. It was in the latest mask."""


def new_mask(vocab_size: int) -> Mask:
    """A mask that allows no token."""
    return np.zeros(-(-vocab_size // 32), np.uint32)


def fill(constraint: Constraint, mask: Mask, vocab_size: int) -> None:
    """The tokens allowed next, into `mask`. Raises ConstraintError where there are none, and as the constraint does."""
    mask[:] = 0
    constraint.fill_mask(mask)
    if vocab_size % 32:
        mask[-1] &= np.uint32((1 << vocab_size % 32) - 1)
    if not mask.any():
        raise ConstraintError("the constraint allows no next token of this model's vocabulary")
