"""BlockTable: where one request's tokens live, a row of block ids a cache group. Takes and frees nothing itself."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

BlockIds = npt.NDArray[np.int32]


class BlockTable:
    """Block `i` of a group holds tokens i * block_tokens .. (i + 1) * block_tokens; groups have equally many.

    Room for the longest the request can get is set aside at once (`max_blocks` integers a group), so that what was
    handed to a running step is never moved.
    """

    __slots__ = ("_all", "_ids", "num_blocks", "num_offered")

    def __init__(self, num_groups: int, max_blocks: int) -> None:
        self._ids = np.empty((num_groups, max_blocks), np.int32)
        self.num_blocks = self.num_offered = 0  # offered: named in the prefix cache
        self._all: tuple[BlockIds, ...] = ()
        self.clear()

    def append(self, blocks_by_group: Sequence[Sequence[int]]) -> None:
        """Adds each group's new blocks at its end."""
        end = self.num_blocks + max(map(len, blocks_by_group), default=0)
        for row, block_ids in zip(self._ids, blocks_by_group, strict=True):
            row[self.num_blocks : end] = block_ids
        self.num_blocks = end
        self._all = tuple(row[:end] for row in self._ids)

    def first(self, num_blocks: int) -> tuple[BlockIds, ...]:
        """The first `num_blocks` ids, one (num_blocks,) view a group."""
        if num_blocks == self.num_blocks:
            return self._all
        return tuple(row[:num_blocks] for row in self._all)

    def at(self, index: int) -> tuple[int, ...]:
        """The ids of one block, one a group."""
        return tuple(int(row[index]) for row in self._all)

    def replace(self, index: int, block_ids: Sequence[int]) -> None:
        """Another block that holds the same, one id a group. No step may be running."""
        for row, block_id in zip(self._ids, block_ids, strict=True):
            row[index] = block_id

    def clear(self) -> None:
        """Forgets every block."""
        self.num_blocks = self.num_offered = 0
        self._all = tuple(row[:0] for row in self._ids)
