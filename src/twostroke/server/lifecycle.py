"""Lifecycle: starting, ready, draining. Owns which exchanges are under way, and how they end when the server does."""

import asyncio
from typing import Protocol

from twostroke.server.errors import ApiError


class Endable(Protocol):
    """Something under way that can be made to fail."""

    def fail(self, error: BaseException) -> None: ...


class Lifecycle:
    """Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self.is_draining = False
        self._exchanges = 0
        self._running: set[Endable] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def num_exchanges(self) -> int:
        """API requests that have not been answered in full."""
        return self._exchanges

    def enter(self) -> None:
        """A request of the API has come. Raises ApiError (503) while draining."""
        if self.is_draining:
            headers = {"Retry-After": "5", "Connection": "close"}
            raise ApiError(503, "the server is shutting down", "shutting_down", headers=headers)
        self._exchanges += 1
        self._idle.clear()

    def leave(self) -> None:
        """It is answered, or its client has gone."""
        self._exchanges -= 1
        if not self._exchanges:
            self._idle.set()

    def add(self, running: Endable) -> None:
        """Something to end when time is up."""
        self._running.add(running)

    def remove(self, running: Endable) -> None:
        self._running.discard(running)

    async def drain(self, seconds: float) -> bool:
        """Refuses new requests and waits for those under way; after `seconds` makes them fail. Whether all finished."""
        self.is_draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
            return True
        except TimeoutError:
            self.end_all()
            return False

    def end_all(self, error: BaseException | None = None) -> None:
        """Makes everything that runs fail, with the error if there is one."""
        self.is_draining = True
        for running in tuple(self._running):
            running.fail(error or ApiError(503, "the server is shutting down", "shutting_down"))
