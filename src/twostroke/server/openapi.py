"""The OpenAPI document, from the pydantic models and the table of routes. Owns its form."""

from typing import Any

from pydantic.json_schema import models_json_schema

from twostroke import __version__
from twostroke.server.routes import ENDPOINTS, Endpoint

_ERRORS = {
    "400": "A field is wrong, unknown or not supported; the error names it.",
    "401": "A key is needed.",
    "404": "There is no such model or path.",
    "408": "The body did not come in time.",
    "413": "The body is too large.",
    "429": "Too much waits; Retry-After says when to come again.",
    "503": "The server is shutting down, or had no time to read the request.",
    "504": "The answer took too long.",
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
        "components": {"schemas": {**schemas["$defs"], "Error": _error(), "MessagesError": _messages_error()}},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    kind = "text/plain" if endpoint.path == "/metrics" else "application/json"
    content: dict[str, Any] = {kind: {"schema": {"type": "string" if kind == "text/plain" else "object"}}}
    operation: dict[str, Any] = {"summary": endpoint.summary, "responses": {"200": {"description": "Done."}}}
    if endpoint.body is not None:
        reference = {"$ref": f"#/components/schemas/{endpoint.body.__name__}"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
        if "stream" in endpoint.body.model_fields:
            content["text/event-stream"] = {}  # events of several forms; api.md says which
    operation["responses"]["200"]["content"] = content
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "description": text, "schema": {"type": "number"}}
        for name, text in endpoint.query
    ]
    if "{" in endpoint.path:
        parameters.append({"name": "name", "in": "path", "required": True, "schema": {"type": "string"}})
    if parameters:
        operation["parameters"] = parameters
    name = "MessagesError" if endpoint.path.startswith("/v1/messages") else "Error"
    failure = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    for status, text in _ERRORS.items():
        operation["responses"][status] = {"description": text, "content": failure}
    return operation


def _error() -> dict[str, Any]:
    nullable = {"type": ["string", "null"]}
    fields = {"message": {"type": "string"}, "type": {"type": "string"}, "param": nullable, "code": nullable}
    inner = {"type": "object", "properties": fields, "required": list(fields)}
    return {"type": "object", "properties": {"error": inner}, "required": ["error"]}


def _messages_error() -> dict[str, Any]:
    inner = {"type": "object", "properties": {"type": {"type": "string"}, "message": {"type": "string"}}}
    fields = {"type": {"const": "error"}, "error": {**inner, "required": ["type", "message"]}}
    return {"type": "object", "properties": fields, "required": list(fields)}
