"""From bytes to a request model. Owns what JSON is accepted, and how a fault is named; each is an ApiError of 400."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from twostroke.server.errors import ApiError
from twostroke.server.protocol.fields import RequestModel, refused_fields

M = TypeVar("M", bound=RequestModel)


@dataclass(frozen=True, slots=True)
class Parsed(Generic[M]):
    """A valid body, and the names of unknown fields that were left out."""

    body: M
    ignored: tuple[str, ...] = ()


def parse(data: bytes, model: type[M], *, lenient: bool = False) -> Parsed[M]:
    """The body as `model`. Unknown fields are refused, or left out where `lenient`; refused ones never are accepted.

    NaN, infinities, invalid UTF-8, lone surrogates and nesting beyond the parser's bound are no JSON.
    """
    try:
        given = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", "invalid_json") from None
    if not isinstance(given, dict):
        raise ApiError(400, f"the body must be a JSON object, not {_kind(given)}", "invalid_json")
    body, ignored = _validated(given, model, lenient)
    if names := list(refused_fields(body)):
        verb = "is" if len(names) == 1 else "are"
        raise ApiError(400, f"{', '.join(names)} {verb} not supported", "unsupported_parameter", names[0])
    return Parsed(body, ignored)


def _validated(given: dict[str, Any], model: type[M], lenient: bool) -> tuple[M, tuple[str, ...]]:
    try:
        return model.model_validate(given), ()
    except ValidationError as error:
        faults = [_Fault.of(detail, given) for detail in error.errors(include_url=False, include_input=False)]
    unknown = [fault for fault in faults if fault.kind == "extra_forbidden"]
    if unknown and lenient:
        _leave_out(given, [fault.location for fault in unknown])
        body, more = _validated(given, model, lenient)
        return body, (*dict.fromkeys(fault.path for fault in unknown), *more)
    raise _error(faults, unknown)


@dataclass(frozen=True, slots=True)
class _Fault:
    """One of pydantic's complaints. `location` is the part of its path that is in the data: names of a union's members
    are not."""

    kind: str
    message: str
    location: tuple[int | str, ...]

    @classmethod
    def of(cls, detail: ErrorDetails, given: Any) -> "_Fault":
        found: list[int | str] = []
        for index, part in enumerate(detail["loc"]):
            is_last_name = index == len(detail["loc"]) - 1 and detail["type"] in ("missing", "extra_forbidden")
            if isinstance(given, dict) and isinstance(part, str) and (part in given or is_last_name):
                given = given.get(part)
            elif isinstance(given, list) and isinstance(part, int) and part < len(given):
                given = given[part]
            else:
                continue
            found.append(part)
        return cls(detail["type"], detail["msg"], tuple(found))

    @property
    def path(self) -> str:
        """As in `messages[0].content`."""
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.location)
        return "".join(parts).removeprefix(".")


def _error(faults: Sequence[_Fault], unknown: Sequence[_Fault]) -> ApiError:
    """The deepest fault, for a value that fits no member of a union is most likely meant for the nearest; of several
    a wrong value before a name that is unknown or missing."""
    ranks = {"extra_forbidden": 1, "missing": 2}
    worst = min(faults, key=lambda fault: (-len(fault.location), ranks.get(fault.kind, 0)))
    if worst.kind == "extra_forbidden":
        names = list(dict.fromkeys(fault.path for fault in unknown))
        noun = "field" if len(names) == 1 else "fields"
        return ApiError(400, f"unknown {noun} {', '.join(names)}", "unknown_parameter", names[0])
    same = (fault.message for fault in faults if fault.location == worst.location)
    message = " or ".join(dict.fromkeys(text[:1].lower() + text[1:] for text in same))
    code = "missing_parameter" if worst.kind == "missing" else "invalid_parameter"
    where = worst.path or "the body"
    return ApiError(400, f"{where}: {message}", code, worst.path or None)


def _leave_out(given: Any, locations: Sequence[tuple[int | str, ...]]) -> None:
    for location in locations:
        inner = given
        for part in location[:-1]:
            inner = inner[part]
        inner.pop(location[-1], None)


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
