"""A batch's input file, line by line. Owns what a line must be and how a bad one is named; answers nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from twostroke.errors import ConfigError
from twostroke.server.errors import ApiError
from twostroke.server.parse import parse
from twostroke.server.protocol.batch import BatchRequest

MAX_LINE = 2**26  # bytes


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A line that is not empty: its number from 1 on, and the request in it, or what is wrong with it."""

    number: int
    custom_id: str | None
    request: BatchRequest | None
    fault: ApiError | None = None


def batch_lines(path: Path) -> Iterator[BatchLine]:
    """The lines of a file, read as they are taken. Of two that have one custom_id the later is wrong.

    Raises ConfigError where the file cannot be read.
    """
    seen: dict[str, int] = {}
    for number, data in _raw_lines(path):
        line = _line(number, data)
        if line.request is not None and line.custom_id is not None:
            first = seen.setdefault(line.custom_id, number)
            if first != number:
                message = f"line {number} has the custom_id of line {first}, {line.custom_id!r}"
                fault = ApiError(400, message, "duplicate_custom_id", "custom_id")
                line = BatchLine(number, line.custom_id, None, fault)
        yield line


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Lines with their numbers, blank ones left out; None for one that is too long."""
    try:
        with path.open("rb") as file:
            number = 0
            while data := file.readline(MAX_LINE + 1):
                number += 1
                is_long = len(data) > MAX_LINE
                while data and not data.endswith(b"\n") and is_long:
                    data = file.readline(MAX_LINE)
                if is_long or data.strip():
                    yield number, None if is_long else data
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None


def _line(number: int, data: bytes | None) -> BatchLine:
    if data is None:
        return BatchLine(number, None, None, ApiError(413, f"line {number} is over {MAX_LINE} bytes", "line_too_long"))
    try:
        request = parse(data, BatchRequest).body
    except ApiError as error:
        said = error.message
        message = f"line {number}{said.removeprefix('the body')}" if said.startswith("the body ") else None
        fault = ApiError(400, message or f"line {number}: {said}", error.code, error.param)
        return BatchLine(number, _custom_id(data), None, fault)
    return BatchLine(number, request.custom_id, request)


def _custom_id(data: bytes) -> str | None:
    """That of a line which is wrong in another way."""
    try:
        given: Any = from_json(data, allow_inf_nan=False)
    except ValueError:
        return None
    found = given.get("custom_id") if isinstance(given, dict) else None
    return found if isinstance(found, str) else None
