"""KVCache: one BlockPool a cache group, taken from and freed together. Owns who holds what; decides nothing."""

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from twostroke.kvcache.chain import BlockKey
from twostroke.kvcache.pool import BlockPool
from twostroke.kvcache.prefix import Match, PrefixCache
from twostroke.kvcache.store import BlockStore
from twostroke.kvcache.table import BlockTable

BlockCounts = npt.NDArray[np.int32]


class KVCache:
    """The blocks of all cache groups. `num_blocks` has one count a group; a block holds `block_tokens` tokens.

    With a prefix cache, full blocks that were offered stay after their requests, until their room is needed. The
    cache itself is then one of a block's holders. What is given up goes to the `store`, where there is one. A block is
    named in all groups at once: a group with a window keeps those behind it too, as its requests do.
    """

    def __init__(
        self,
        block_tokens: int,
        num_blocks: tuple[int, ...],
        *,
        prefix_cache: bool = False,
        store: BlockStore | None = None,
    ) -> None:
        self.block_tokens = block_tokens
        self.pools = tuple(BlockPool(count) for count in num_blocks)
        self.prefix = PrefixCache() if prefix_cache and num_blocks else None
        self._store = store

    @property
    def num_blocks(self) -> int:
        """Blocks that one request can have at most in every group."""
        return min((pool.num_blocks for pool in self.pools), default=sys.maxsize)

    @property
    def num_free(self) -> int:
        """Blocks that every group could still give, those kept for later prompts among them."""
        idle = 0 if self.prefix is None else self.prefix.num_idle
        return min((pool.num_free for pool in self.pools), default=sys.maxsize - idle) + idle

    def usage(self) -> tuple[BlockCounts, BlockCounts]:
        """Of each block of the first group, how many requests use it, and 1 where it is kept for later prompts.

        Two (num_blocks,) arrays of their own, for showing: any thread may call it, and while a step changes what it
        reads a block may be told as it was or as it will be. Both are empty where nothing is cached at all.
        """
        if not self.pools:
            return np.zeros(0, np.int32), np.zeros(0, np.int32)
        users = np.array(self.pools[0].holders, np.int32)
        named = np.zeros_like(users)
        if self.prefix is not None:
            named[self.prefix.named_ids] = 1
        return np.maximum(users - named, 0), named

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
        while any(pool.num_free < missing for pool in self.pools):
            self._evict()
        table.append([pool.allocate(missing) for pool in self.pools])
        return True

    def match(self, keys: Sequence[BlockKey]) -> Match:
        """The cached blocks of the longest run from the first key on."""
        return Match((), "there is no prefix cache") if self.prefix is None else self.prefix.match(keys)

    def attach(self, table: BlockTable, match: Match) -> None:
        """Makes the matched blocks the beginning of an empty table."""
        if self.prefix is None or not match.blocks:
            return
        self.prefix.use(match.blocks)
        by_group = list(zip(*(block.block_ids for block in match.blocks), strict=True))
        for pool, block_ids in zip(self.pools, by_group, strict=True):
            pool.share(block_ids)
        table.append(by_group)
        table.num_offered = len(match.blocks)

    def offer(self, table: BlockTable, keys: Sequence[BlockKey]) -> None:
        """Names the table's first blocks by these keys; all their rows have been computed.

        Where a block of the same name is there already, the table gets that one and gives its own back.
        """
        if self.prefix is None:
            return
        for index in range(table.num_offered, len(keys)):
            block_ids, match = table.at(index), self.prefix.match(keys[index : index + 1])
            if match.blocks:
                self.prefix.use(match.blocks)
                table.replace(index, match.blocks[0].block_ids)
            else:
                self.prefix.add(keys[index], block_ids)
            for pool, block_id, kept_id in zip(self.pools, block_ids, table.at(index), strict=True):
                pool.share((kept_id,))
                if kept_id != block_id:
                    pool.free((block_id,))
        table.num_offered = max(table.num_offered, len(keys))

    def restore(self, table: BlockTable, keys: Sequence[BlockKey]) -> None:
        """Brings back, from the store, what follows the offered beginning of a table, as far as these keys go."""
        if self._store is not None and self.prefix is not None:
            for index in range(table.num_offered, len(keys)):
                is_here = bool(self.prefix.match(keys[index : index + 1]).blocks)
                if not is_here and not self._store.load(keys[index], table.at(index)):
                    return
                self.offer(table, keys[: index + 1])

    def release(self, table: BlockTable) -> None:
        """Gives back every block of the table."""
        by_group = [block_ids.tolist() for block_ids in table.first(table.num_blocks)]
        for pool, block_ids in zip(self.pools, by_group, strict=True):
            pool.free(block_ids)
        if self.prefix is not None:
            self.prefix.leave(by_group[0])
        table.clear()

    def _evict(self) -> None:
        if self.prefix is not None:
            block = self.prefix.evict()
            if self._store is not None:
                self._store.save(block.key, block.block_ids)
            for pool, block_id in zip(self.pools, block.block_ids, strict=True):
                pool.free((block_id,))
