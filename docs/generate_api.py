"""Writes the HTTP API's reference from the request models themselves: `python docs/generate_api.py docs/api.md`.

Owns the page's form and what is true of all requests; every field's line is the model's own. A test compares the page
with what this renders.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from twostroke.server.protocol.fields import RequestModel, support_of
from twostroke.server.routes import ENDPOINTS, Endpoint

HEADINGS = {"supported": "Supported", "no effect": "Accepted without effect", "refused": "Known and refused"}


def render(preface: str) -> str:
    """The whole page, as Markdown."""
    return "\n".join([preface, overview(), *(section(endpoint) for endpoint in ENDPOINTS if endpoint.body)])


def overview() -> str:
    lines = ["## Endpoints", "", "| | |", "|---|---|"]
    lines += [f"| `{e.method} {e.path.replace(':path', '')}` | {e.summary} |" for e in ENDPOINTS]
    return "\n".join([*lines, "| `GET /openapi.json` | The OpenAPI document, from the same models as this page. |", ""])


def section(endpoint: Endpoint) -> str:
    """One endpoint's fields, by whether they are supported, and those of the objects in it."""
    lines = [f"## {endpoint.method} {endpoint.path}", ""]
    for model in dict.fromkeys(models_of(endpoint.body)):
        name = "" if model is endpoint.body else f"`{model.__name__}`: "
        for support, heading in HEADINGS.items():
            rows = [row(model, field) for field in model.model_fields if support_of(model, field) == support]
            if rows:
                columns = "| field | accepted | would |" if support == "refused" else "| field | type | |"
                lines += [f"{name}{heading}", "", columns, "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def models_of(model: Any) -> Iterator[type[BaseModel]]:
    """The model, and the request models among its fields' types."""
    yield model
    for field in model.model_fields.values():
        for inner in members(field.annotation):
            if isinstance(inner, type) and issubclass(inner, RequestModel):
                yield from models_of(inner)


def members(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from members(inner)


def row(model: type[BaseModel], name: str) -> str:
    field = model.model_fields[name]
    text = (field.description or "").replace("|", "\\|")
    if support_of(model, name) == "refused":
        extra: Any = field.json_schema_extra
        accepted = ", ".join(f"`{json.dumps(value)}`" for value in [*extra["x-accepted"], None])
        return f"| `{name}` | {accepted} | {text} |"
    name = field.alias or name
    schema = model.model_json_schema()["properties"][name]
    needed = "" if not field.is_required() else " Required."
    return f"| `{name}` | {type_of(schema)} | {text}{needed} |"


def type_of(schema: dict[str, Any]) -> str:
    """A schema in words: its type and range."""
    if options := schema.get("anyOf", schema.get("oneOf")):
        kinds = [type_of(inner) for inner in options if inner.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in schema:
        return "`" + schema["$ref"].rpartition("/")[2] + "`"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any")
    if kind == "array":
        most = f" (at most {schema['maxItems']})" if "maxItems" in schema else ""
        return f"array{most} of {type_of(schema['items'])}"
    return f"{kind}{range_of(schema)}"


def range_of(schema: dict[str, Any]) -> str:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None or high is None:
        return f", at most {schema['maxLength']} characters" if "maxLength" in schema else ""
    above = "above " if "exclusiveMinimum" in schema else ""
    below = "below " if "exclusiveMaximum" in schema else ""
    return f", {above}{number(low)} to {below}{number(high)}"


def number(value: float) -> str:
    for power in (31, 63, 64):
        if abs(value) == 2**power:
            return f"{'-' if value < 0 else ''}2^{power}"
    return f"{value:g}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    preface = Path(__file__).with_name("api_preface.md").read_text(encoding="utf-8")
    page.write_text(render(preface), encoding="utf-8")
