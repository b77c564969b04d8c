"""Formats: what an answer must look like, from a body's fields to a grammar. Owns that a body has one at most."""

from typing import Any

from twostroke.errors import InvalidRequestError
from twostroke.server.protocol.formats import ResponseFormat
from twostroke.server.protocol.sampling import SamplingRequest
from twostroke.text.grammar.grammar import Grammar, literal


def asked_grammar(body: SamplingRequest) -> Grammar | None:
    """The grammar that a body asks for, if any. Raises InvalidRequestError for two of them, or for one that is
    malformed or cannot be enforced."""
    asked: dict[str, Any] = {
        name: getattr(body, name)
        for name in ("regex", "guided_regex", "grammar", "guided_grammar", "guided_json", "guided_choice")
        if getattr(body, name) is not None
    }
    if body.response_format is not None and body.response_format.type != "text":
        asked["response_format"] = body.response_format
    elif body.response_format is not None:
        response_grammar(body.response_format)
    if len(asked) > 1:
        first, second, *_ = asked
        raise InvalidRequestError(f"{first} and {second} exclude each other")
    for name, value in asked.items():
        return _grammar(name, value)
    return None


def response_grammar(form: ResponseFormat, name: str = "response_format") -> Grammar | None:
    """The grammar of a response format; none for text."""
    if (form.type == "json_schema") != (form.json_schema is not None):
        missing = form.json_schema is None
        problem = "needs the field json_schema" if missing else f"goes not with type {form.type!r}"
        raise InvalidRequestError(
            f"{name}: type 'json_schema' {problem}" if missing else f"{name}.json_schema {problem}"
        )
    if form.json_schema is not None:
        return Grammar.json_schema(form.json_schema.schema_, f"{name}.json_schema.schema")
    return Grammar.json_object(name) if form.type == "json_object" else None


def _grammar(name: str, value: Any) -> Grammar | None:
    if name == "response_format":
        return response_grammar(value)
    if name == "guided_json":
        return Grammar.json_schema(value, name)
    if name == "guided_choice":
        return Grammar.lark("start: " + " | ".join(map(literal, value)), name)
    return Grammar.regex(value, name) if name.endswith("regex") else Grammar.lark(value, name)
