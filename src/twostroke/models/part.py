"""Part: which rows of a stored tensor make up one of its own. Owns the record; cutting it out is `parts`'s.

Planning reads families without any weights, so nothing here needs arrays.
"""

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of the stored tensor `tensor`, which are all its dimensions but the last; of `vectors`, their elements.

    The rows are arranged as `view`, and `index` of that is taken. `transposed`: the last two dimensions are swapped
    first. `shape` is what comes out.
    """

    tensor: str
    shape: tuple[int, ...]
    view: tuple[int, ...]
    index: tuple[int | slice, ...] = ()
    transposed: bool = False
    vectors: bool = False

    @property
    def num_rows(self) -> int:
        """How many rows come out."""
        taken = (
            len(range(*each.indices(dim)))
            for dim, each in zip(self.view, self.index, strict=False)
            if isinstance(each, slice)
        )
        return prod(taken) * prod(self.view[len(self.index) :])
