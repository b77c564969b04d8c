"""Spill: blocks between the executor's pool and the disk. Owns the way; the tier owns the files."""

from collections.abc import Sequence

from twostroke.engine.executor import Executor
from twostroke.kvcache.chain import BlockKey
from twostroke.kvcache.disk import DiskTier


class Spill:
    """A BlockStore on disk. Used between steps, by the engine's thread."""

    def __init__(self, executor: Executor, tier: DiskTier) -> None:
        self._executor = executor
        self._tier = tier

    def save(self, key: BlockKey, block_ids: Sequence[int], *, wait: bool = False) -> None:
        """Copies the blocks and leaves them to the writing thread. Where too many wait already they are not kept,
        unless this call may wait."""
        if not self._tier.has(key):
            self._tier.put(key, self._executor.export_blocks(block_ids), wait=wait)

    def load(self, key: BlockKey, block_ids: Sequence[int]) -> bool:
        """Reads the blocks back, checked; False where they are not there or damaged."""
        data = self._tier.get(key)
        if data is None:
            return False
        self._executor.import_blocks(block_ids, data)
        return True

    def close(self) -> None:
        """Returns once everything saved is on the disk."""
        self._tier.close()
