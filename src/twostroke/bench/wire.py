"""Wire: one HTTP/1.1 connection, timed at the socket. Owns framing (h11) and what a broken connection is called.

Bytes are stamped the moment the event loop reads them and handed on at once; nothing is buffered on the way.
"""

import asyncio
import time
from typing import Protocol

import h11


class FailedRequestError(Exception):
    """A request that failed, by kind: what errors are counted under. Never leaves the package."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind, self.detail = kind, detail


class Sink(Protocol):
    """Takes an answer as it comes; times are of `time.perf_counter`. May raise FailedRequestError."""

    def sent(self, now: float) -> None:
        """The request is written now."""

    def begin(self, status: int, content_type: str, now: float) -> None:
        """The answer's head is here."""

    def feed(self, data: bytes, now: float) -> bool:
        """A piece of the body; True once nothing that matters can follow."""


_LINGER = 0.25  # seconds for the message's end after its last byte that matters; then the connection is not kept


class Wire(asyncio.Protocol):
    """A connection that carries one request after another."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self._transport: asyncio.Transport | None = None
        self._sink: Sink | None = None
        self._ended: asyncio.Future[None] | None = None
        self.has_answered = False

    @property
    def is_open(self) -> bool:
        """Whether another request can go over it."""
        idle = self._http.our_state is h11.IDLE and self._http.their_state is h11.IDLE
        return idle and self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: h11.Request, body: bytes, sink: Sink) -> None:
        """Sends a request and feeds `sink` until its answer has ended. Raises FailedRequestError."""
        if self._transport is None:
            raise FailedRequestError("closed early")
        self._sink, self.has_answered = sink, False
        self._ended = asyncio.get_running_loop().create_future()
        parts = (self._http.send(request), self._http.send(h11.Data(data=body)), self._http.send(h11.EndOfMessage()))
        data = b"".join(part for part in parts if part)
        sink.sent(time.perf_counter())
        self._transport.write(data)
        try:
            await self._ended
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._sink = self._ended = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- called by the event loop -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._sink is not None:
            self.has_answered = True
            self._receive(data, now)

    def eof_received(self) -> None:
        self._receive(b"", time.perf_counter())

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("closed early", str(exc or ""))
        self._transport = None

    # --- taking an answer apart ---------------------------------------------------------------------------------------

    def _receive(self, data: bytes, now: float) -> None:
        try:
            self._http.receive_data(data)
            while self._step(now):
                pass
        except FailedRequestError as error:
            self._fail(error.kind, error.detail)
            self.close()
        except h11.RemoteProtocolError as error:
            if data:
                self._fail("broken HTTP", str(error))
            else:
                self._fail("closed early", "in the middle of an answer" if self.has_answered else "without an answer")
            self.close()

    def _step(self, now: float) -> bool:
        """Whether there may be another event in what has been received."""
        event = self._http.next_event()
        if isinstance(event, h11.Data):
            if self._sink is not None and self._sink.feed(bytes(event.data), now):
                asyncio.get_running_loop().call_later(_LINGER, self._leave, self._ended)
            return True
        if isinstance(event, h11.Response):
            types = [value for name, value in event.headers if name == b"content-type"]
            if self._sink is not None:
                self._sink.begin(event.status_code, types[0].decode("latin-1") if types else "", now)
            return True
        if isinstance(event, h11.EndOfMessage):
            self._finish()
            return False
        if isinstance(event, h11.ConnectionClosed):
            self._fail("closed early")
            self.close()
            return False
        return isinstance(event, h11.InformationalResponse)

    def _finish(self) -> None:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self.close()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _leave(self, ended: asyncio.Future[None] | None) -> None:
        """Ends an exchange whose answer is whole though the server has not ended the message."""
        if ended is not None and not ended.done():
            ended.set_result(None)
            self.close()

    def _fail(self, kind: str, detail: str = "") -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(FailedRequestError(kind, detail))
