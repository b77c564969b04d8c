"""JSON schemas as a user gives them. Owns what is accepted: size, depth, and keywords that are enforced or only
annotate; enforcing is llguidance's.
"""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal

from twostroke.errors import InvalidRequestError
from twostroke.text.grammar.expansion import check_pattern

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 64
MAX_STEP = 10_000  # of `multipleOf`, and of its digits taken as one number: the automaton has as many states

# White space between two JSON tokens: a blank, or one new line with its indentation. It bounds what a model that likes
# blanks can write where any white space would be valid JSON.
WHITE_SPACE = r"[ ]?|\n[ \t]{0,24}"

_ANNOTATIONS = frozenset(
    {"$schema", "$id", "$anchor", "$comment", "title", "description", "default", "examples", "example"}
    | {"deprecated", "readOnly", "writeOnly", "discriminator", "id"}
)
_ENFORCED = frozenset(
    {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions", "properties", "required"}
    | {"additionalProperties", "patternProperties", "minProperties", "maxProperties", "items", "prefixItems"}
    | {"additionalItems", "minItems", "maxItems", "minLength", "maxLength", "pattern", "format"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONES = ("items", "additionalProperties", "additionalItems")


def checked_schema(schema: object, name: str) -> dict[str, object]:
    """The schema as an object in which every keyword is enforced or an annotation.

    `name` is the request's field. Raises InvalidRequestError naming what is too large, too deep, no schema, or the
    keyword that cannot be enforced and where it stands.
    """
    if schema is True:
        return {}
    if not isinstance(schema, Mapping):
        raise InvalidRequestError(f"{name} must be a JSON schema, an object, not {_kind(schema)}")
    _check_size(schema, name)
    for place, part in _subschemas(schema, name):
        if isinstance(part, bool):
            continue
        if not isinstance(part, Mapping):
            raise InvalidRequestError(f"{place} must be a JSON schema, an object, not {_kind(part)}")
        for keyword in part:
            if keyword not in _ENFORCED and keyword not in _ANNOTATIONS and not _is_extension(keyword):
                raise InvalidRequestError(f"{place}: the JSON schema keyword {keyword!r} cannot be enforced")
        _check_cost(part, place)
    return dict(schema)


def schema_text(schema: Mapping[str, object]) -> str:
    """A checked schema as llguidance takes it: nothing lenient, white space bounded. Keys keep their order, which is
    the order in which they are written."""
    options = {"whitespace_pattern": WHITE_SPACE, "lenient": False, "coerce_one_of": False}
    return json.dumps({**schema, "x-guidance": options}, ensure_ascii=False)


def _check_size(schema: Mapping[str, object], name: str) -> None:
    if (depth := _depth(schema)) > MAX_SCHEMA_DEPTH:
        raise InvalidRequestError(f"{name} is nested {depth} deep; at most {MAX_SCHEMA_DEPTH}")
    try:
        size = len(json.dumps(schema, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"{name} is no JSON: {error}") from None
    if size > MAX_SCHEMA_BYTES:
        raise InvalidRequestError(f"{name} has {size} bytes; at most {MAX_SCHEMA_BYTES}")


def _check_cost(part: Mapping[str, object], place: str) -> None:
    """Refuses what is small to write and takes long to enforce."""
    pattern, step = part.get("pattern"), part.get("multipleOf")
    if isinstance(pattern, str):
        check_pattern(pattern, f"{place}.pattern")
    patterns = part.get("patternProperties")
    for key in patterns if isinstance(patterns, Mapping) else ():
        check_pattern(str(key), f"{place}.patternProperties")
    if isinstance(step, int | float) and not isinstance(step, bool) and not _is_small(step):
        raise InvalidRequestError(
            f"{place}.multipleOf: {step} is not above 0 and, its digits as well, at most {MAX_STEP}"
        )


def _is_small(step: float) -> bool:
    digits = Decimal(str(step)).normalize().as_tuple().digits
    return 0 < step <= MAX_STEP and int("".join(map(str, digits))) <= MAX_STEP


def _depth(schema: object) -> int:
    depth, level = 0, [schema]
    while level and depth <= 4 * MAX_SCHEMA_DEPTH:
        depth += 1
        level = [item for part in level for item in _items(part)]
    return depth


def _items(part: object) -> list[object]:
    if isinstance(part, Mapping):
        return list(part.values())
    return list(part) if isinstance(part, list | tuple) else []


def _subschemas(schema: object, place: str) -> Iterator[tuple[str, object]]:
    """Every schema inside, itself first, and where it stands."""
    yield place, schema
    if not isinstance(schema, Mapping):
        return
    for keyword in _MAPS:
        members = schema.get(keyword)
        if isinstance(members, Mapping):
            for key, part in members.items():
                yield from _subschemas(part, f"{place}.{keyword}.{key}")
    for keyword in _LISTS:
        parts = schema.get(keyword)
        if isinstance(parts, list | tuple):
            for index, part in enumerate(parts):
                yield from _subschemas(part, f"{place}.{keyword}[{index}]")
    for keyword in _ONES:
        if keyword in schema and not isinstance(schema[keyword], list | tuple):
            yield from _subschemas(schema[keyword], f"{place}.{keyword}")


def _is_extension(keyword: object) -> bool:
    return isinstance(keyword, str) and keyword.startswith("x-") and keyword != "x-guidance"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", str: "a string", int: "a number", float: "a number", list: "an array"}
    return names.get(type(value), type(value).__name__)
