"""BlockStore: where blocks go that the pool has no room for. Owns the interface only."""

from collections.abc import Sequence
from typing import Protocol

from twostroke.kvcache.chain import BlockKey


class BlockStore(Protocol):
    """Keeps and brings back what blocks hold; forgetting is allowed, changing is not."""

    def save(self, key: BlockKey, block_ids: Sequence[int]) -> None:
        """Keeps what these blocks, one a group, hold. They may be overwritten on return."""

    def load(self, key: BlockKey, block_ids: Sequence[int]) -> bool:
        """Makes these blocks hold what was kept under the key; False, leaving them alone, where nothing is."""
