"""The application: routes, gate and CORS around one service. Owns how they are put together."""

from collections.abc import Awaitable, Callable, Sequence

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from twostroke.server.auth import Keys
from twostroke.server.errors import ApiError
from twostroke.server.gate import Gate
from twostroke.server.openapi import openapi_document
from twostroke.server.page import page_routes
from twostroke.server.routes import ENDPOINTS, Endpoint
from twostroke.server.service import Service
from twostroke.server.wire import json_bytes


def build_app(service: Service, keys: Keys) -> ASGIApp:
    """The ASGI application of a service. Everything it serves is made here; nothing is looked up later."""
    routes = [Route(endpoint.path, _bound(service, endpoint), methods=[endpoint.method]) for endpoint in ENDPOINTS]
    document = json_bytes(openapi_document())
    routes.append(Route("/openapi.json", _constant(document), methods=["GET"]))
    page = list(page_routes())
    routes += page
    known = {route.path for route in routes}
    gate = Gate(
        _Application(routes),
        keys=keys,
        lifecycle=service.lifecycle,
        page_paths=[route.path for route in page],
        guards_metrics=service.config.metrics == "key",
        answered=lambda path, status: service.metrics.answered(path if path in known else "other", status),
    )
    if not service.config.cors_origin:
        return gate
    return CORSMiddleware(
        gate,
        allow_origins=service.config.cors_origin,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["x-request-id"],
    )


class _Application:
    """The routes, without Starlette's own error pages: errors are the gate's to answer."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # makes the router raise where it refuses
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            is_missing = error.status_code == 404
            path, method = scope["path"], scope["method"]
            message = f"there is no {path}" if is_missing else f"{path} does not take {method}"
            code = "not_found" if is_missing else "method_not_allowed"
            raise ApiError(error.status_code, message, code, headers=dict(error.headers or {})) from None


def _bound(service: Service, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        response: Response = await endpoint.handler(service, request)
        return response

    return answer


def _constant(data: bytes) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(data, media_type="application/json")

    return answer
