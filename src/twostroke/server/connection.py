"""Connections: uvicorn's, with a deadline for a request's head. Owns that deadline; a body's is `parse`'s."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def connection_class(head_timeout: float) -> type[H11Protocol]:
    """Connections that are told 408 and closed where a head is not whole after so many seconds: from the connection's
    beginning, later from the head's first byte. Between requests uvicorn's own limit of silence holds."""

    class Connection(H11Protocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._await_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:
                self._await_head()
            else:
                self._forget()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            if self._deadline is None:
                self._deadline = self.loop.call_later(head_timeout, self._end)

        def _forget(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _end(self) -> None:
            if not self.transport.is_closing():
                self.transport.write(_TOO_LATE)
                self.transport.close()

    return Connection
