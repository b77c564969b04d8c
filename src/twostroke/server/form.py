"""Form: what an answer looks like, in one API's words. Owns the interface only; `answer.py` runs it.

A form sees every delta once, in order, whether the client streams or not. So both come from the same path.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from twostroke.server.errors import ApiError
from twostroke.server.job import Delta


class Form(Protocol):
    """The answer to one request. Methods return the bytes of server-sent events, possibly none."""

    def open(self) -> bytes:
        """What a stream begins with, before there is a token."""

    def deltas(self, deltas: Sequence[Delta]) -> bytes:
        """Events for what is new."""

    def progress(self, processed: int, total: int) -> bytes:
        """An event, where asked for: so many of the prompts' tokens are processed."""

    def close(self) -> bytes:
        """The end of a stream, once every choice has ended."""

    def failed(self, error: ApiError) -> bytes:
        """The end of a stream that failed."""

    def keep(self, deltas: Sequence[Delta]) -> None:
        """Takes what is new for `body`."""

    def body(self) -> dict[str, Any]:
        """The whole response, where it is not streamed."""
