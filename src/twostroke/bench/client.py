"""Client: requests to one server over connections that are kept. Owns addresses, headers, time limits and reuse.

A request's clock starts when it is written to a connection that is open, so no figure holds the time to connect.
"""

import asyncio
import json
import os
import ssl
from collections.abc import Mapping
from typing import Any, Self

import h11

from twostroke.bench.address import Address
from twostroke.bench.wire import FailedRequestError, Sink, Wire
from twostroke.errors import ConfigError

_MAX_JSON_BYTES = 64 << 20


class Client:
    """Connections to the host of `url`, as many as there are requests at a time; the key goes into a header only."""

    def __init__(self, url: str, api_key: str | None, timeout: float) -> None:
        self._address, self._timeout = Address.parse(url), timeout
        self._tls = ssl.create_default_context() if self._address.scheme == "https" else None
        self._headers = [("host", self._address.authority), ("accept", "text/event-stream, application/json")]
        self._headers += [("content-type", "application/json"), ("user-agent", "twostroke")]
        if api_key:
            self._headers.append(("authorization", f"Bearer {_header_text(api_key)}"))
        self._idle: list[Wire] = []

    @property
    def origin(self) -> str:
        return self._address.origin

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for wire in self._idle:
            wire.close()
        self._idle.clear()
        await asyncio.sleep(0)

    async def post(self, path: str, body: bytes, sink: Sink) -> None:
        """Feeds `sink` with the answer. Raises FailedRequestError: what went wrong with the connection, or timeout."""
        await self._exchange("POST", path, body, sink)

    async def get_json(self, path: str) -> Any:
        """The JSON value at a path. Raises FailedRequestError."""
        return await self._json("GET", path, b"")

    async def post_json(self, path: str, value: Mapping[str, Any]) -> Any:
        """The JSON value that answers one. Raises FailedRequestError."""
        return await self._json("POST", path, json.dumps(value).encode())

    async def _json(self, method: str, path: str, body: bytes) -> Any:
        sink = _Body()
        await self._exchange(method, path, body, sink)
        if sink.status != 200:
            raise FailedRequestError(f"HTTP {sink.status}", error_text(bytes(sink.data)))
        try:
            return json.loads(sink.data)
        except (ValueError, RecursionError):
            raise FailedRequestError("not JSON") from None

    async def _exchange(self, method: str, path: str, body: bytes, sink: Sink) -> None:
        headers = [*self._headers, ("content-length", str(len(body)))]
        request = h11.Request(method=method, target=path + self._address.query, headers=headers)
        try:
            async with asyncio.timeout(self._timeout):
                wire, is_reused = await self._take()
                try:
                    await wire.exchange(request, body, sink)
                except FailedRequestError as error:
                    if error.kind != "closed early" or wire.has_answered or not is_reused:
                        raise
                    wire = await self._connect()  # the server had closed it while it was idle
                    await wire.exchange(request, body, sink)
        except TimeoutError:
            raise FailedRequestError("timeout", f"after {self._timeout:g} s") from None
        if wire.is_open:
            self._idle.append(wire)

    async def _take(self) -> tuple[Wire, bool]:
        while self._idle:
            wire = self._idle.pop()
            if wire.is_open:
                return wire, True
        return await self._connect(), False

    async def _connect(self) -> Wire:
        loop = asyncio.get_running_loop()
        try:
            _, wire = await loop.create_connection(Wire, self._address.host, self._address.port, ssl=self._tls)
        except ssl.SSLError as error:
            raise FailedRequestError("cannot connect", error.reason or str(error)) from None
        except OSError as error:
            raise FailedRequestError("cannot connect", _reason(error)) from None
        return wire


class _Body:
    """A sink that keeps the whole body."""

    def __init__(self) -> None:
        self.status, self.data = 0, bytearray()

    def sent(self, now: float) -> None:
        self.data.clear()

    def begin(self, status: int, content_type: str, now: float) -> None:
        self.status = status

    def feed(self, data: bytes, now: float) -> bool:
        self.data += data
        if len(self.data) > _MAX_JSON_BYTES:
            raise FailedRequestError("not JSON", f"over {_MAX_JSON_BYTES:,} bytes")
        return False


def _reason(error: OSError) -> str:
    """What the system says; asyncio has words of its own in its place, with the address, which the caller knows."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


def error_text(body: bytes) -> str:
    """What an error's body says, on one line of at most 200 characters: an OpenAI error's message, or its beginning."""
    try:
        value = json.loads(body)
        found = value.get("error", value) if isinstance(value, dict) else value
        message = found.get("message", found) if isinstance(found, dict) else found
    except (ValueError, RecursionError):
        message = body.decode("utf-8", errors="replace")
    return " ".join(str(message).split())[:200]


def _header_text(key: str) -> str:
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError("the API key has characters that no header can carry")
    return key
