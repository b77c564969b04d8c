"""Prefill policy: admission by free blocks, and chunks of what is known but not computed under the step's budget."""

import logging
from collections.abc import Sequence
from itertools import takewhile

from twostroke.engine.allowance import Allowance
from twostroke.engine.plan import Chunk
from twostroke.engine.queues import Queues
from twostroke.engine.request import Request
from twostroke.kvcache.chain import BlockKey

_logger = logging.getLogger(__name__)


def prefill_chunks(queues: Queues, allowance: Allowance, max_running: int) -> list[Chunk]:
    """Chunks for requests that lag behind their known tokens, first those running, then those now admitted.

    Prompts, generated rows that are computed again after a preemption, and forced rows all lag. Order is the order of
    admission, under the step's allowance; but half of it goes to those who have at most half as much left as the
    first, so that a short prompt does not wait for the whole of a long one before it.
    """
    lagging = [request for request in queues.running if not request.has_caught_up]
    chunks: list[Chunk] = []
    if lagging:
        with allowance.halved():
            chunks += _shorter(queues, allowance, max_running, lagging)
        taken = {chunk.request for chunk in chunks}
        chunks += [chunk for r in lagging if r not in taken and (chunk := allowance.chunk(r))]
    while not allowance.is_spent and len(queues.running) < max_running and (admitted := _admit(queues)):
        if chunk := allowance.chunk(admitted):
            chunks.append(chunk)
    return chunks


def _shorter(queues: Queues, allowance: Allowance, max_running: int, lagging: Sequence[Request]) -> list[Chunk]:
    """Chunks for those that have at most half as much left as the first, least left first, then new ones."""
    most = _left(lagging[0]) // 2
    short = sorted((request for request in lagging[1:] if _left(request) <= most), key=_left)
    chunks = [chunk for request in short if not allowance.is_spent and (chunk := allowance.chunk(request))]
    while not allowance.is_spent and len(queues.running) < max_running:
        if not queues.waiting or _left(queues.waiting[0]) > most or (admitted := _admit(queues)) is None:
            break
        if chunk := allowance.chunk(admitted):
            chunks.append(chunk)
    return chunks


def _left(request: Request) -> int:
    return request.num_tokens - request.num_computed


def _admit(queues: Queues) -> Request | None:
    """The first in the queue, running with the blocks of all its known tokens; None where those are not free.

    It begins with what the cache has of it, up to the first row whose output is wanted: that one is always computed.
    Where a running request is about to compute half of the rest or more, it waits for that. Nobody overtakes the
    first. A block is left for each running request to grow into, lest the newcomer be preempted at once.
    """
    if not queues.waiting:
        return None
    request, cache = queues.waiting[0], queues.cache
    keys = request.chain.keys[: request.num_reusable // cache.block_tokens]
    match = cache.match(keys)
    needed = cache.blocks_for(request.num_tokens) - len(match.blocks)
    spare = len(queues.running)
    if needed + spare > cache.num_free - match.num_idle or _is_coming(queues, keys, len(match.blocks)):
        return None
    cache.attach(request.table, match)
    cache.grow(request.table, request.num_tokens)
    cache.restore(request.table, keys)
    _log_reuse(request, len(keys) - request.table.num_offered, match.miss)
    return queues.admit_first()


def _is_coming(queues: Queues, keys: Sequence[BlockKey], num_cached: int) -> bool:
    """Some running request computes at least half of the blocks that the cache lacks of these, and has not yet."""
    missing = keys[num_cached:]
    if queues.cache.prefix is None or not missing:
        return False
    for request in queues.running:
        theirs = request.chain.keys[num_cached:]
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(missing, theirs, strict=False)))
        is_ahead = num_cached + common > request.num_computed // queues.cache.block_tokens
        if is_ahead and 2 * common >= len(missing):
            return True
    return False


def _log_reuse(request: Request, num_missed: int, miss: str) -> None:
    reason = miss if num_missed else "the rest is computed for its outputs"
    blocks = request.table.num_offered
    _logger.debug("request %s: %d of %d blocks cached; %s", request.id, blocks, request.table.num_blocks, reason)
