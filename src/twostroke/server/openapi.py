"""The OpenAPI document, from the pydantic models and the table of routes. Owns its form."""

from typing import Any

from pydantic.json_schema import models_json_schema

from twostroke import __version__
from twostroke.server.routes import ENDPOINTS, Endpoint

_ERRORS = {
    "400": "A field is wrong, unknown or not supported; the error names it.",
    "401": "A key is needed.",
    "404": "There is no such model or path.",
    "413": "The body is too large.",
    "429": "Too much waits; Retry-After says when to come again.",
    "503": "The server is shutting down, or had no time to read the request.",
}


def openapi_document() -> dict[str, Any]:
    """The whole document, version 3.1."""
    models = [(endpoint.body, "validation") for endpoint in ENDPOINTS if endpoint.body is not None]
    _, schemas = models_json_schema(models, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        path = endpoint.path.replace(":path", "")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Twostroke", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**schemas["$defs"], "Error": _error()}},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    kind = "text/plain" if endpoint.path == "/metrics" else "application/json"
    content: dict[str, Any] = {kind: {"schema": {"type": "string" if kind == "text/plain" else "object"}}}
    operation: dict[str, Any] = {"summary": endpoint.summary, "responses": {"200": {"description": "Done."}}}
    if endpoint.body is not None:
        reference = {"$ref": f"#/components/schemas/{endpoint.body.__name__}"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
        if "stream" in endpoint.body.model_fields:
            content["text/event-stream"] = {"schema": {"type": "string"}}
    operation["responses"]["200"]["content"] = content
    if "{" in endpoint.path:
        operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    failure = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status, text in _ERRORS.items():
        operation["responses"][status] = {"description": text, "content": failure}
    return operation


def _error() -> dict[str, Any]:
    nullable = {"type": ["string", "null"]}
    fields = {"message": {"type": "string"}, "type": {"type": "string"}, "param": nullable, "code": nullable}
    inner = {"type": "object", "properties": fields, "required": list(fields)}
    return {"type": "object", "properties": {"error": inner}, "required": ["error"]}
