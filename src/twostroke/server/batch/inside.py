"""A request to the application without a network: the way of a batch's lines. Owns one exchange, in memory."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message

from twostroke.server.wire import headers


async def post(app: ASGIApp, path: str, body: bytes, given: Mapping[str, str]) -> tuple[int, bytes]:
    """Status and body of the answer to a POST with those headers. Raises what the application does."""
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("ascii"),
        "root_path": "",
        "query_string": b"",
        "headers": headers(given),
        "client": None,
        "server": None,
    }
    unread = [body]
    status = 0
    pieces: list[bytes] = []

    async def receive() -> Message:
        if not unread:
            await asyncio.Event().wait()  # a client that never leaves
        return {"type": "http.request", "body": unread.pop(), "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, b"".join(pieces)
