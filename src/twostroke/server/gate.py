"""Gate: what every request passes first and last. Owns request ids, keys, the access log, and errors as JSON."""

import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twostroke.errors import EngineStoppedError
from twostroke.server.answer import ClientGone, StreamFailed
from twostroke.server.auth import Keys
from twostroke.server.errors import ApiError, api_error
from twostroke.server.lifecycle import Lifecycle
from twostroke.server.wire import headers

_ID = re.compile(r"[\x21-\x7e]{1,128}\Z")
_OPEN = ("/health", "/ready")
_POLLED = "/activity"  # by every open page, several times a second
_log = logging.getLogger("twostroke.access")


class Gate:
    """ASGI middleware. `answered` is told path and status of each request, for the metrics."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Keys,
        lifecycle: Lifecycle,
        guards_metrics: bool,
        page_paths: Sequence[str],
        answered: Callable[[str, int], None],
    ) -> None:
        self._app = app
        self._keys = keys
        self._lifecycle = lifecycle
        self._open = frozenset((*_OPEN, *page_paths, *(() if guards_metrics else ("/metrics",))))
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        passage = _Passage(scope, send)
        try:
            await self._pass(scope, receive, passage)
        except ClientGone:
            pass
        except StreamFailed as failed:  # the client has been told, within the stream
            self._report(failed.__cause__, passage)
        except Exception as error:
            self._report(error, passage)
            if passage.status:
                raise  # the server closes the connection, and so the client knows
            await _send_error(passage.send, api_error(error), scope["path"])
        finally:
            self._answered(scope["path"], passage.status)
            passage.log()

    def _report(self, error: BaseException | None, passage: "_Passage") -> None:
        """Logs what no client is told: a fault of the server's own. The engine's end is logged once, not here."""
        if error is not None and not isinstance(error, EngineStoppedError) and api_error(error).status == 500:
            _log.error("failed", exc_info=error, extra={"request_id": passage.request_id})

    async def _pass(self, scope: Scope, receive: Receive, passage: "_Passage") -> None:
        path = scope["path"]
        if path in self._open:
            await self._app(scope, receive, passage.send)
            return
        self._keys.check(Headers(scope=scope))
        self._lifecycle.enter()
        try:
            await self._app(scope, receive, passage.send)
        finally:
            self._lifecycle.leave()


class _Passage:
    """One request on its way: its id, and what was answered."""

    def __init__(self, scope: Scope, send: Send) -> None:
        given = Headers(scope=scope).get("x-request-id", "")
        self.request_id = given if _ID.match(given) else f"req-{secrets.token_hex(12)}"
        self.status = 0
        self._scope = scope
        self._send = send
        self._started = time.perf_counter()
        scope["state"] = {**scope.get("state", {}), "request_id": self.request_id, "notes": {}}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)["x-request-id"] = self.request_id
        await self._send(message)

    def log(self) -> None:
        is_poll = self._scope["path"] == _POLLED and self.status == 200
        if is_poll or not _log.isEnabledFor(logging.INFO):
            return
        facts = {
            "request_id": self.request_id,
            "method": self._scope["method"],
            "path": self._scope["path"],
            "status": self.status or 499,
            "seconds": round(time.perf_counter() - self._started, 6),
            **self._scope["state"]["notes"],
        }
        _log.info("request", extra=facts)


async def _send_error(send: Send, error: ApiError, path: str) -> None:
    data = error.data(path)
    given = headers({"content-type": "application/json", "content-length": str(len(data)), **error.headers})
    await send({"type": "http.response.start", "status": error.status, "headers": given})
    await send({"type": "http.response.body", "body": data})
