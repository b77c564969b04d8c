"""JSON and server-sent events on the wire. Owns their bytes."""

import json
from collections.abc import Mapping
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


def text_of(value: Any) -> str:
    """A value in JSON, as short as it gets; characters as they are."""
    return _encode(value)


def json_bytes(value: Any) -> bytes:
    """The same in UTF-8. Text of a model and of a validated body is always Unicode."""
    return _encode(value).encode("utf-8")


def event(data: str) -> bytes:
    """One event whose data is JSON, and so one line."""
    return f"data: {data}\n\n".encode()


def named_event(name: str, data: Any) -> bytes:
    """One event under a name, whose data is a value in JSON."""
    return f"event: {name}\ndata: {text_of(data)}\n\n".encode()


def headers(values: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI has them."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in values.items()]
