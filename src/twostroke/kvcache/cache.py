"""KVCache: one BlockPool a cache group, taken from and freed together. Owns who holds what; decides nothing."""

import sys

from twostroke.kvcache.pool import BlockPool
from twostroke.kvcache.table import BlockTable


class KVCache:
    """The blocks of all cache groups. `num_blocks` has one count a group; a block holds `block_tokens` tokens."""

    def __init__(self, block_tokens: int, num_blocks: tuple[int, ...]) -> None:
        self.block_tokens = block_tokens
        self.pools = tuple(BlockPool(count) for count in num_blocks)

    @property
    def num_blocks(self) -> int:
        """Blocks that one request can have at most in every group."""
        return min((pool.num_blocks for pool in self.pools), default=sys.maxsize)

    @property
    def num_free(self) -> int:
        """Blocks that every group could still give."""
        return min((pool.num_free for pool in self.pools), default=sys.maxsize)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that many tokens take in each group."""
        return -(-num_tokens // self.block_tokens)

    def new_table(self, max_tokens: int) -> BlockTable:
        """An empty table with room for `max_tokens` tokens."""
        return BlockTable(len(self.pools), self.blocks_for(max_tokens))

    def grow(self, table: BlockTable, num_tokens: int) -> bool:
        """Extends the table to cover `num_tokens`; False, taking nothing, where the blocks for it are not free."""
        missing = self.blocks_for(num_tokens) - table.num_blocks
        if missing <= 0:
            return True
        if missing > self.num_free:
            return False
        table.append([pool.allocate(missing) for pool in self.pools])
        return True

    def release(self, table: BlockTable) -> None:
        """Gives back every block of the table."""
        for pool, block_ids in zip(self.pools, table.first(table.num_blocks), strict=True):
            pool.free(block_ids.tolist())
        table.clear()
