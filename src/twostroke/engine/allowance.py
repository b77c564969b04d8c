"""Allowance: what one step has left for rows that lag behind. Owns how far a request's next chunk goes; no request."""

import math

from twostroke.engine.plan import Chunk, next_chunk
from twostroke.engine.request import Request
from twostroke.program.cost import ChunkShape, CostModel


class Allowance:
    """Rows and FLOPs left in a step, taken chunk by chunk.

    Where FLOPs are bounded, a chunk ends with a block, and the step's first chunk has one block at least: however
    little time there is, every prompt gets on.
    """

    def __init__(self, rows: int, chunk_rows: int, flops: float, cost: CostModel, block_tokens: int) -> None:
        self._rows, self._chunk_rows, self._flops = rows, chunk_rows, flops
        self._cost, self._block_tokens = cost, block_tokens
        self._is_first = True

    @property
    def is_spent(self) -> bool:
        return self._rows <= 0 or not (self._is_first or self._flops > 0)

    def chunk(self, request: Request) -> Chunk | None:
        """The request's next rows under what is left, which they are taken from; None where not even a block fits."""
        rows = min(self._rows, self._chunk_rows)
        if rows > 0 and math.isfinite(self._flops):
            rows = self._within_time(request, rows)
        if rows <= 0:
            return None
        chunk = next_chunk(request, rows)
        self._rows -= chunk.length
        self._is_first = False
        if math.isfinite(self._flops):
            self._flops -= self._cost.step((chunk,)).flops
        return chunk

    def _within_time(self, request: Request, most: int) -> int:
        """Rows that the FLOPs left pay for, `most` at most, up to the end of a block or of what is known."""
        start = request.num_computed
        rows, phase = most, request.next_phase
        for _ in range(2):  # later rows see more keys and cost more: the second time is for what they add
            flops = self._cost.step((ChunkShape(start, rows, 0, phase=phase),)).flops
            rows = min(rows, int(rows * max(0.0, self._flops) / flops))
            if not rows:
                break
        if rows >= request.num_tokens - start:
            return rows
        end = (start + rows) // self._block_tokens * self._block_tokens
        if end > start:
            return end - start
        return min(most, self._block_tokens - start % self._block_tokens) if self._is_first else 0
