"""Workers: threads for what must not hold up the event loop. Owns their number and their deadline."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from twostroke.server.errors import ApiError

T = TypeVar("T")
_NUM_THREADS = 4


class Workers:
    """Runs functions in threads. One that is late is no longer waited for; it ends when it ends."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="prepare")

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result. Raises ApiError (503) where it takes longer than the deadline, queueing included."""
        future = self._threads.submit(function)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._timeout)
        except TimeoutError:
            message = f"reading the request took longer than {self._timeout:g} s"
            raise ApiError(503, message, "prepare_timeout", headers={"Retry-After": "5"}) from None

    def close(self) -> None:
        """Ends the threads, without waiting for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)
