"""BlockPool: the blocks of one cache group, and how many hold each. Ids only: owns no array, knows no request."""

from collections.abc import Iterable


class BlockPoolError(RuntimeError):
    """A block was taken, shared or freed against the rules: a defect of the caller, never of a user's input."""


class BlockPool:
    """Blocks 0 .. num_blocks, each free or held by one or more requests. Its size never changes."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._holders = [0] * num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free)

    def num_holders(self, block_id: int) -> int:
        """How many hold the block; 0 is free."""
        return self._holders[block_id]

    @property
    def holders(self) -> list[int]:
        """Of each block, how many hold it: a copy, which any thread may take."""
        return self._holders.copy()

    def allocate(self, count: int) -> list[int]:
        """`count` free blocks, each now held once. Raises BlockPoolError, taking none, where fewer are free."""
        if not 0 <= count <= len(self._free):
            raise BlockPoolError(f"{count} blocks asked for, {len(self._free)} of {self.num_blocks} are free")
        block_ids = [self._free.pop() for _ in range(count)]
        for block_id in block_ids:
            self._holders[block_id] = 1
        return block_ids

    def share(self, block_ids: Iterable[int]) -> None:
        """One more holder for each block. Raises BlockPoolError where one is free."""
        for block_id in block_ids:
            self._require_held(block_id)
            self._holders[block_id] += 1

    def free(self, block_ids: Iterable[int]) -> None:
        """One holder less for each block; the last one's leaving makes it free. Raises BlockPoolError if it was."""
        for block_id in block_ids:
            self._require_held(block_id)
            self._holders[block_id] -= 1
            if not self._holders[block_id]:
                self._free.append(block_id)

    def _require_held(self, block_id: int) -> None:
        if not 0 <= block_id < self.num_blocks or not self._holders[block_id]:
            raise BlockPoolError(f"block {block_id} is not held by anyone")
