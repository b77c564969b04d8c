"""One `tokenizer.ggml.*` key of a GGUF file at a time: its type, its length and its range. Owns these checks and their
messages; what a key means is `gguf_vocabulary.py`'s.
"""

import math
from collections.abc import Mapping
from enum import IntEnum
from typing import cast

from twostroke.errors import ModelFileError

PREFIX = "tokenizer.ggml."


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`, as the GGUF format numbers it."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def string(metadata: Mapping[str, object], key: str) -> str:
    """A text that must be there."""
    value = metadata.get(PREFIX + key)
    if not isinstance(value, str):
        found = "is missing" if value is None else f"must be a string, found {type(value).__name__}"
        raise ModelFileError(f"{PREFIX}{key} {found}")
    return value


def flag(metadata: Mapping[str, object], key: str, default: bool) -> bool:
    """True or false."""
    value = metadata.get(PREFIX + key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ModelFileError(f"{PREFIX}{key} must be true or false, found {value!r}")
    return value


def token_id(metadata: Mapping[str, object], key: str, num_tokens: int) -> int | None:
    """An id of the vocabulary, None when the key is absent."""
    value = metadata.get(PREFIX + key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < num_tokens:
        raise ModelFileError(f"{PREFIX}{key} is {value!r}, outside the vocabulary of {num_tokens} tokens")
    return value


def array(metadata: Mapping[str, object], key: str) -> list[object] | None:
    """The array as a list (NumPy arrays are converted), None when the key is absent."""
    value = metadata.get(PREFIX + key)
    if value is None:
        return None
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, list):
        raise ModelFileError(f"{PREFIX}{key} must be an array, found {type(value).__name__}")
    return value


def strings(metadata: Mapping[str, object], key: str) -> list[str]:
    """Texts, one or more."""
    values = array(metadata, key)
    if not values:
        raise ModelFileError(f"{PREFIX}{key} is {'missing' if values is None else 'empty'}")
    if set(map(type, values)) != {str}:
        index = next(i for i, value in enumerate(values) if not isinstance(value, str))
        raise ModelFileError(f"{PREFIX}{key}[{index}] must be a string, found {type(values[index]).__name__}")
    return cast("list[str]", values)


def tokens(metadata: Mapping[str, object]) -> list[str]:
    """The vocabulary: no text twice, but for the empty one."""
    texts = strings(metadata, "tokens")
    if len(set(texts)) != len(texts):
        first: dict[str, int] = {}
        for index, token in enumerate(texts):
            if first.setdefault(token, index) != index and token:
                raise ModelFileError(f"{PREFIX}tokens[{index}] repeats tokens[{first[token]}]: {token!r}")
    return texts


def types(metadata: Mapping[str, object], num_tokens: int) -> list[int] | None:
    """A type for each token, None when the key is absent."""
    values = array(metadata, "token_type")
    if values is None:
        return None
    if len(values) != num_tokens:
        raise ModelFileError(f"{PREFIX}token_type has {len(values)} entries for {num_tokens} tokens")
    known = set(map(int, TokenType))
    if set(map(type, values)) != {int} or not known.issuperset(cast("list[int]", values)):
        index = next(i for i, value in enumerate(values) if type(value) is not int or value not in known)
        raise ModelFileError(f"{PREFIX}token_type[{index}] is {values[index]!r}, not a token type")
    return cast("list[int]", values)


def ids_of_type(kinds: list[int] | None, wanted: TokenType) -> frozenset[int]:
    """Ids of one type."""
    number = int(wanted)  # comparing plain ints: an enum's comparison costs ten times as much over a vocabulary
    return frozenset([index for index, value in enumerate(kinds or ()) if value == number])


def scores(metadata: Mapping[str, object], num_tokens: int) -> list[float]:
    """A finite score for each token."""
    values = array(metadata, "scores")
    if values is None:
        raise ModelFileError(f"{PREFIX}scores is missing")
    if len(values) != num_tokens:
        raise ModelFileError(f"{PREFIX}scores has {len(values)} entries for {num_tokens} tokens")
    if not {int, float}.issuperset(map(type, values)) or not all(map(math.isfinite, cast("list[float]", values))):
        index = next(i for i, v in enumerate(values) if type(v) not in (int, float) or not math.isfinite(v))  # type: ignore[arg-type]
        raise ModelFileError(f"{PREFIX}scores[{index}] is {values[index]!r}, not a finite number")
    return cast("list[float]", values)


def byte_string(metadata: Mapping[str, object], key: str) -> bytes:
    """Bytes stored as an array of 8-bit integers, of either sign; empty when the key is absent."""
    values = array(metadata, key)
    if values is None:
        return b""
    if not {int}.issuperset(map(type, values)) or not all(-128 <= cast("int", value) < 256 for value in values):
        raise ModelFileError(f"{PREFIX}{key} must be an array of bytes")
    return bytes(cast("int", value) & 0xFF for value in values)
