"""The live page at /: its files and what a browser may do with them. Owns GET /, /page/... and /activity.

The page is static and says nothing of the server: what it shows comes from the API, with a key where one is needed.
"""

import math
from collections.abc import Awaitable, Callable, Iterator
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twostroke.server.errors import ApiError
from twostroke.server.service import Service
from twostroke.server.wire import json_bytes

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_POLICY = (
    *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'"),
    *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
    *("require-trusted-types-for 'script'", "trusted-types 'none'"),
)
_HEADERS = {
    "content-security-policy": "; ".join(_POLICY),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


def page_routes() -> Iterator[Route]:
    """The page at /, and its parts by name below /page; all are read here, once."""
    for entry in files("twostroke.server").joinpath("static").iterdir():
        name, _, ending = entry.name.rpartition(".")
        if ending in _TYPES:
            path = "/" if name == "index" else f"/page/{entry.name}"
            yield Route(path, _constant(entry.read_bytes(), _TYPES[ending]), methods=["GET"])


async def answer_activity(service: Service, request: Request) -> Response:
    """What the engine does now; with `?since=`, a time of the engine's clock, only the steps that ended later."""
    given = request.query_params.get("since", "0")
    try:
        since = float(given)
    except ValueError:
        since = math.nan
    if not math.isfinite(since):
        raise ApiError(400, f"since must be a time in seconds, not {given!r}", "invalid_parameter", "since")
    about = {"model": service.names[0], "context": service.llm.context, "max_batch": service.llm.config.max_batch}
    body = json_bytes(about | service.activity.snapshot(since))
    return Response(body, headers={"cache-control": "no-store"}, media_type="application/json")


def _constant(data: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(data, headers=_HEADERS, media_type=kind)

    return answer
