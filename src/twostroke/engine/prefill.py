"""Prefill policy: admission by free blocks, and chunks of what is known but not computed under the step's budget."""

from twostroke.engine.plan import Chunk, next_chunk
from twostroke.engine.queues import Queues
from twostroke.engine.request import Request


def prefill_chunks(queues: Queues, budget: int, max_chunk: int, max_running: int) -> list[Chunk]:
    """Chunks for requests that lag behind their known tokens, first those running, then those now admitted.

    Prompts, generated rows that are computed again after a preemption, and forced rows all lag. Order is the order of
    admission, `budget` rows at most, `max_chunk` of one request.
    """
    chunks: list[Chunk] = []
    for request in queues.running:
        if budget <= 0:
            return chunks
        if not request.has_caught_up:
            chunks.append(next_chunk(request, min(budget, max_chunk)))
            budget -= chunks[-1].length
    while budget > 0 and len(queues.running) < max_running and (admitted := _admit(queues)):
        chunks.append(next_chunk(admitted, min(budget, max_chunk)))
        budget -= chunks[-1].length
    return chunks


def _admit(queues: Queues) -> Request | None:
    """The first in the queue, running with the blocks of all its known tokens; None where those are not free.

    Nobody overtakes the first. A block is left for each running request to grow into, lest the newcomer be preempted
    at once.
    """
    if not queues.waiting:
        return None
    request, cache = queues.waiting[0], queues.cache
    needed = cache.blocks_for(request.num_tokens)
    if queues.running and needed + len(queues.running) > cache.num_free:
        return None
    return queues.admit_first() if cache.grow(request.table, request.num_tokens) else None
