"""How much longer a file may make a text before it is cut. Owns the bound: a normaliser that replaces a character by
a page, or doubles a text forty times, would take all memory for a short message.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from twostroke.errors import ModelFileError

MAX_GROWTH = 256
"""Characters for one, and the length of what is put before a text. The longest that Unicode itself needs is 18."""


def check_charsmap(data: bytes, name: str) -> None:
    """Raises ModelFileError, naming the field, for a compiled table of replacements with one that is too long.

    The table is the size of its index, the index, and the replacements, each ended by a zero byte.
    """
    index_bytes = int.from_bytes(data[:4], "little")
    longest = max(map(len, data[4 + index_bytes :].split(b"\0")))
    if longest > MAX_GROWTH:
        raise ModelFileError(f"{name} replaces a character by {longest} bytes (limit: {MAX_GROWTH})")


def check_normalizer(normalizer: object, name: str) -> None:
    """The same for a `normalizer` of tokenizer.json, all its steps together."""
    growth = _growth(normalizer, name)
    if growth > MAX_GROWTH:
        raise ModelFileError(f"{name} may make a text {growth:,} times as long (limit: {MAX_GROWTH})")


def _growth(step: object, name: str) -> int:
    if not isinstance(step, Mapping):
        return 1
    inner = step.get("normalizers")
    growth = 1
    for each in inner if isinstance(inner, list) else []:
        growth *= _growth(each, name)
        if growth > MAX_GROWTH:
            return growth
    if step.get("type") == "Precompiled":
        _check_encoded(step.get("precompiled_charsmap"), name)
    return growth * _step_growth(step)


def _step_growth(step: Mapping[str, Any]) -> int:
    content = step.get("content")
    if step.get("type") == "Replace" and isinstance(content, str):
        pattern = step.get("pattern")
        text = pattern.get("String") if isinstance(pattern, Mapping) else None
        if isinstance(text, str) and text:
            return max(1, -(-len(content) // len(text)))
        return 1 + len(content)  # a regular expression may match nothing, at every character
    if step.get("type") == "Prepend" and isinstance(step.get("prepend"), str):
        return max(1, len(step["prepend"]))
    return 1


def _check_encoded(charsmap: object, name: str) -> None:
    if isinstance(charsmap, str):
        try:
            data = base64.b64decode(charsmap, validate=True)
        except (binascii.Error, ValueError):
            raise ModelFileError(f"{name}: precompiled_charsmap is not base64") from None
        check_charsmap(data, f"{name}: precompiled_charsmap")
