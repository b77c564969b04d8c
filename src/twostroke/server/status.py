"""GET /health, /ready, /metrics and /v1/models. Owns what each says."""

from starlette.requests import Request
from starlette.responses import Response

from twostroke.server.errors import ApiError, unknown_model
from twostroke.server.service import Service
from twostroke.server.wire import json_bytes

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def answer_health(service: Service, request: Request) -> Response:
    """200 as long as the engine runs."""
    alive = service.serving.is_alive
    return _json({"status": "ok" if alive else "the engine has stopped"}, 200 if alive else 503)


async def answer_ready(service: Service, request: Request) -> Response:
    """200 where new requests are taken: 503 while draining."""
    ready = service.serving.is_alive and not service.lifecycle.is_draining
    return _json({"status": "ready" if ready else "not ready"}, 200 if ready else 503)


async def answer_metrics(service: Service, request: Request) -> Response:
    """Prometheus' text format."""
    if service.config.metrics == "off":
        raise ApiError(404, "metrics are off", "not_found")
    return Response(service.metrics.text(), headers={"content-type": _METRICS_TYPE})


async def answer_models(service: Service, request: Request) -> Response:
    """The names that the model is served under."""
    return _json({"object": "list", "data": [_model(service, name) for name in service.names]})


async def answer_model(service: Service, request: Request) -> Response:
    """One of them."""
    name = request.path_params["name"]
    if name not in service.names:
        raise unknown_model(name, service.names)
    return _json(_model(service, name))


def _model(service: Service, name: str) -> dict[str, object]:
    """`max_model_len` is what one request may have; the pool is what all share."""
    llm = service.llm
    return {
        "id": name,
        "object": "model",
        "created": service.started,
        "owned_by": "twostroke",
        "max_model_len": llm.context,
        "kv_pool_tokens": llm.memory.pool_tokens,
        "max_batch": llm.config.max_batch,
    }


def _json(fields: object, status: int = 200) -> Response:
    return Response(json_bytes(fields), status, media_type="application/json")
