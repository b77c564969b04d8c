"""PrefixCache: which full blocks hold what, and who of them is in use. Ids and names only; takes and frees no block."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twostroke.kvcache.chain import BlockKey

_NUM_REMEMBERED = 4096  # names of evicted blocks that are kept to say why a prompt missed


@dataclass(slots=True)
class CachedBlock:
    """A block (one of every cache group) with a name. `num_users` requests have it in their tables."""

    key: BlockKey
    block_ids: tuple[int, ...]
    num_users: int


class Match(NamedTuple):
    """The cached blocks that a prompt begins with, and why there are no more: "" where none was left to look for."""

    blocks: Sequence[CachedBlock]
    miss: str

    @property
    def num_idle(self) -> int:
        """Those that nobody else uses: they count as free until they are taken."""
        return sum(not block.num_users for block in self.blocks)


class PrefixCache:
    """Named blocks. Those that no request uses are idle and are given up least recently used first.

    A request leaves its blocks from the last to the first, so that a chain loses its end before its beginning.
    """

    def __init__(self) -> None:
        self._named: dict[bytes, CachedBlock] = {}
        self._by_id: dict[int, CachedBlock] = {}  # by the id in the first group
        self._idle: OrderedDict[bytes, CachedBlock] = OrderedDict()
        self._evicted: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._named)

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    @property
    def named_ids(self) -> list[int]:
        """Blocks that have a name, by their ids in the first group: a copy, which any thread may take."""
        return list(self._by_id)

    @property
    def idle(self) -> list[CachedBlock]:
        """Idle blocks, least recently used first."""
        return list(self._idle.values())

    def match(self, keys: Sequence[BlockKey]) -> Match:
        """The longest run of cached blocks from the first key on. Changes nothing."""
        blocks: list[CachedBlock] = []
        for key in keys:
            block = self._named.get(key.digest)
            if block is None or block.key.content != key.content:
                reason = "was evicted" if key.digest in self._evicted else "has not been seen"
                return Match(blocks, f"block {len(blocks)} {reason}")
            blocks.append(block)
        return Match(blocks, "")

    def add(self, key: BlockKey, block_ids: tuple[int, ...]) -> None:
        """Names a block that one request uses; no other block may have the name."""
        self._evicted.pop(key.digest, None)
        self._named[key.digest] = self._by_id[block_ids[0]] = CachedBlock(key, block_ids, 1)

    def use(self, blocks: Sequence[CachedBlock]) -> None:
        """One more request has these blocks."""
        for block in blocks:
            if not block.num_users:
                del self._idle[block.key.digest]
            block.num_users += 1

    def leave(self, block_ids: Sequence[int]) -> None:
        """A request leaves its blocks, given by their ids in the first group, in their order; unnamed ones may be
        among them."""
        for block_id in reversed(block_ids):
            block = self._by_id.get(block_id)
            if block is not None:
                block.num_users -= 1
                if not block.num_users:
                    self._idle[block.key.digest] = block

    def evict(self) -> CachedBlock:
        """Forgets the idle block least recently used, and returns it. Raises KeyError where none is idle."""
        digest, block = self._idle.popitem(last=False)
        del self._named[digest], self._by_id[block.block_ids[0]]
        self._evicted[digest] = None
        if len(self._evicted) > _NUM_REMEMBERED:
            self._evicted.popitem(last=False)
        return block
