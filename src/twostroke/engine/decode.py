"""Decode policy: a row for each request that generates, growth of its blocks, preemption where there are none."""

from collections.abc import Sequence

from twostroke.engine.plan import Chunk
from twostroke.engine.queues import Queues
from twostroke.engine.request import Request, State
from twostroke.engine.speculation import MOST_RUNNING, Speculation
from twostroke.kvcache.cache import KVCache
from twostroke.program.phase import Phase


def decode_chunks(queues: Queues, budget: int, speculation: Speculation) -> list[Chunk]:
    """One row of every running request that has caught up, oldest first, `budget` at most; and drafted ones after it
    where no request lags behind and drafts promise to pay.

    A request that needs a block when none is free takes those of the latest admitted. The oldest can therefore always
    go on, and every request ends.
    """
    chunks: list[Chunk] = []
    running = queues.running
    index = 0
    while index < len(running) and len(chunks) < budget:
        request = running[index]
        if request.has_caught_up and _grow(queues, request):
            chunks.append(Chunk(request.num_computed, 1, 1, request, phase=Phase.DECODE))
        index += 1
    if len(chunks) == len(running) <= MOST_RUNNING:
        left = budget - len(chunks)
        for index, chunk in enumerate(chunks):
            chunks[index] = _with_drafts(queues, chunk, speculation.drafts(chunk.request, len(chunks), left))
            left -= chunks[index].length - 1
    return chunks


def goes_on(chunk: Chunk, cache: KVCache) -> bool:
    """Whether after this chunk, which is under way, its request decodes one row more unless its token ends it: it has
    room for the row, in blocks that stay its own (an offered one may be replaced), and what is sampled there hangs on
    nothing that is not known yet."""
    request, end = chunk.request, chunk.start + chunk.length
    is_plain = chunk.samples and chunk.num_outputs == 1 and not chunk.drafts
    is_free = request.constraint is None and not request.sampling.has_penalties
    is_last = request.num_generated + 1 == request.max_tokens
    table = request.table
    has_room = cache.blocks_for(end + 1) <= table.num_blocks
    keeps_blocks = cache.prefix is None or end // cache.block_tokens <= table.num_offered
    return request.state is not State.FINISHED and is_plain and is_free and has_room and keeps_blocks and not is_last


def _with_drafts(queues: Queues, chunk: Chunk, drafts: Sequence[int]) -> Chunk:
    """The chunk with drafted rows; without, where their blocks are not free: nobody is preempted for a guess."""
    request = chunk.request
    end = request.num_tokens + len(drafts)
    if not drafts or not queues.cache.grow(request.table, end):
        return chunk
    request.tokens[request.num_tokens : end] = drafts
    rows = 1 + len(drafts)
    return Chunk(chunk.start, rows, rows, request, phase=chunk.phase, drafts=tuple(drafts))


def _grow(queues: Queues, request: Request) -> bool:
    """Blocks for all of the request's tokens; False where it was the latest admitted and has been preempted."""
    while not queues.cache.grow(request.table, request.num_tokens):
        if queues.preempt_latest() is request:
            return False
    return True
