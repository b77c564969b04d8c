"""Queues: who waits and who runs, and the blocks they hold. Owns the moves between the two; decides none."""

from collections import deque
from collections.abc import Iterator

from twostroke.engine.request import Request, State
from twostroke.kvcache.cache import KVCache
from twostroke.program.phase import Phase


class Queues:
    """`waiting` in the order of arrival, preempted requests in front; `running` in the order of admission."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def __iter__(self) -> Iterator[Request]:
        yield from self.running
        yield from self.waiting

    def admit_first(self) -> Request:
        """The first waiting request starts to run; its blocks have been taken, the first of them computed before."""
        request = self.waiting.popleft()
        request.num_computed = request.table.num_offered * self.cache.block_tokens
        if not request.num_preemptions:
            request.num_cached = request.num_computed
        request.state = State.PREFILL if request.next_phase is Phase.PREFILL else State.DECODE
        self.running.append(request)
        return request

    def preempt_latest(self) -> Request:
        """The latest admitted goes back to the front of the queue without its blocks; all of it is to recompute."""
        request = self.running.pop()
        self.cache.release(request.table)
        request.num_computed = 0
        request.num_preemptions += 1
        request.state = State.WAITING
        self.waiting.appendleft(request)
        return request

    def remove(self, request: Request) -> None:
        """The request is finished, wherever it was; its blocks are free."""
        if request.state is State.WAITING:
            self.waiting.remove(request)
        else:
            self.running.remove(request)
        self.cache.release(request.table)
        request.state = State.FINISHED
