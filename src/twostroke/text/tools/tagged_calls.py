"""Calls whose arguments are tagged texts, one a parameter: Qwen3-Coder's and GLM's. Owns how they become JSON, by the
types in the tool's schema.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.text.answer.marks import Mark, Piece
from twostroke.text.tools.steps import Argued, Ended, Named, NotACall, Step

MAX_HEADER = 320


@dataclass(frozen=True, slots=True)
class Tags:
    """Regular expressions: `name` matches what comes before the parameters and captures `name`; `parameter` captures
    `key` and `value`; `end` comes after the last one. Where it is empty, the mark that ends the call does."""

    begin: str
    name: str
    parameter: str
    end: str


class TaggedCalls:
    """Reads such calls, one after the other. `schemas` has the parameters' JSON schemas by tool: a value is taken as
    text where its schema allows text and it is not JSON of another type that is allowed."""

    def __init__(self, tags: Tags, schemas: Mapping[str, Mapping[str, object]]) -> None:
        self._tags = tags
        self._schemas = schemas
        self._text = ""
        self._name: str | None = None
        self._num_named = 0
        self._num_written = 0
        self._keys: set[str] = set()
        self.rest: str | None = None

    @property
    def is_inside(self) -> bool:
        return False

    def push(self, piece: Piece) -> list[Step]:
        text = piece.text if isinstance(piece, Mark) else piece
        self._text += text
        if self._name is not None and ">" not in text:
            return []  # every tag ends with one: a long value is looked through but once a tag
        steps: list[Step] = []
        while self.rest is None:
            taken = len(self._text)
            steps += self._begin() if self._name is None else self._go_on()
            if len(self._text) == taken:
                break
        return steps

    def _begin(self) -> list[Step]:
        match = re.match(self._tags.name, self._text, re.DOTALL)
        if match is None:
            self._check_begin()
            return []
        self._name = match["name"].strip()
        self._num_named += 1
        self._num_written, self._keys = 0, set()
        self._text = self._text[match.end() :]
        return [Named(self._name)]

    def _go_on(self) -> list[Step]:
        """A parameter, or the call's end."""
        if (match := re.match(self._tags.parameter, self._text, re.DOTALL)) is not None:
            self._text = self._text[match.end() :]
            return self._parameter(match["key"].strip(), match["value"])
        if self._tags.end and (match := re.match(self._tags.end, self._text)) is not None:
            self._text = self._text[match.end() :]
            steps = self._end()
            self._name = None
            return steps
        return []

    def finish(self) -> list[Step]:
        """The mark that ends the call has come."""
        if self._tags.end or self._name is None or self._text.strip():
            return []
        return self._end()

    def _check_begin(self) -> None:
        text, begin = self._text.lstrip(), self._tags.begin
        if len(text) <= MAX_HEADER and text[: len(begin)] == begin[: len(text)]:
            return
        if not self._num_named:
            raise NotACall
        self.rest = self._text

    def _parameter(self, key: str, value: str) -> list[Step]:
        if key in self._keys:
            return []  # JSON has a key once: the first counts
        self._keys.add(key)
        before = "{" if not self._num_written else ", "
        self._num_written += 1
        return [Argued(f"{before}{json.dumps(key, ensure_ascii=False)}: {self._json(key, value)}")]

    def _end(self) -> list[Step]:
        return [Argued("}" if self._num_written else "{}"), Ended()]

    def _json(self, key: str, value: str) -> str:
        types = _types(self._schemas.get(self._name or "", {}), key)
        if types != {"string"}:
            kind = _written_type(value)
            if kind is not None and (not types or kind in types or (kind == "integer" and "number" in types)):
                return value.strip()
        return json.dumps(value, ensure_ascii=False)


def _types(schema: Mapping[str, object], key: str) -> set[str]:
    """The JSON types that a tool's schema allows for a parameter; none where it does not say."""
    properties = schema.get("properties")
    part = properties.get(key) if isinstance(properties, Mapping) else None
    return schema_types(part)


def schema_types(part: object) -> set[str]:
    """The JSON types a schema names, also through anyOf, oneOf, enum and const; empty for any."""
    if not isinstance(part, Mapping):
        return set()
    named = part.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {str(name) for name in named}
    if "const" in part or isinstance(part.get("enum"), list):
        values = part["enum"] if isinstance(part.get("enum"), list) else [part["const"]]
        return {_type(value) for value in values}
    parts = part.get("anyOf", part.get("oneOf"))
    found = [schema_types(option) for option in parts] if isinstance(parts, list) else []
    return set().union(*found) if all(found) else set()


def _written_type(text: str) -> str | None:
    """The JSON type of a text, if it is JSON."""
    try:
        return _type(json.loads(text, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> None:
    raise ValueError(name)  # NaN and infinities are no JSON


def _type(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names[type(value)]
