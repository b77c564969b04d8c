"""JSON from a model's directory or header, bounded before it is parsed. Owns the bounds, not what keys mean."""

import json
from pathlib import Path
from typing import Any

from twostroke.errors import ModelFileError

JSONObject = dict[str, Any]

# A parsed object may take forty times its text. With these two, it takes less than 64 MiB and the model's own bytes.
_FREE_BYTES = 1 << 20
_SHARE_OF_MODEL = 64


def text_limit(model_bytes: int) -> int:
    """How long the JSON text may be that describes `model_bytes` of weights."""
    return _FREE_BYTES + model_bytes // _SHARE_OF_MODEL


def read_object(path: Path, limit: int = _FREE_BYTES) -> JSONObject:
    """The object in a JSON file. Raises ModelFileError, naming the file, for anything else or over `limit` bytes."""
    try:
        with path.open("rb") as file:
            text = file.read(limit + 1)
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from None
    if len(text) > limit:
        raise ModelFileError(f"{path}: over {limit:,} bytes")
    return parse_object(text, str(path))


def parse_object(text: bytes, what: str) -> JSONObject:
    """The object in a JSON text. Raises ModelFileError for another value, bad JSON, or a key that occurs twice."""
    try:
        value = json.loads(text.decode(), object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ModelFileError(f"{what}: nested too deeply") from None
    except ValueError as error:  # not UTF-8, not JSON, a number of thousands of digits, a key twice
        raise ModelFileError(f"{what}: not sound JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{what}: not a JSON object")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> JSONObject:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"{key[:80]!r} occurs twice")
    return result
