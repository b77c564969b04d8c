"""Decode policy: a row for each request that generates, growth of its blocks, preemption where there are none."""

from twostroke.engine.plan import Chunk
from twostroke.engine.queues import Queues
from twostroke.engine.request import Request
from twostroke.program.phase import Phase


def decode_chunks(queues: Queues, budget: int) -> list[Chunk]:
    """One row of every running request that has caught up, oldest first, `budget` at most.

    A request that needs a block when none is free takes those of the latest admitted. The oldest can therefore always
    go on, and every request ends.
    """
    chunks: list[Chunk] = []
    running = queues.running
    index = 0
    while index < len(running) and len(chunks) < budget:
        request = running[index]
        if request.has_caught_up and _grow(queues, request):
            chunks.append(Chunk(request.num_computed, 1, 1, request, Phase.DECODE))
        index += 1
    return chunks


def _grow(queues: Queues, request: Request) -> bool:
    """Blocks for all of the request's tokens; False where it was the latest admitted and has been preempted."""
    while not queues.cache.grow(request.table, request.num_tokens):
        if queues.preempt_latest() is request:
            return False
    return True
