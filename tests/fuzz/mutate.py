"""Seeded damage to bytes, to JSON-like values and to texts. Owns the ways of damage and how its result is written,
not what is damaged."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# What counts, offsets and ids are replaced by: boundaries of the integer types, and what wraps when multiplied.
BOUNDARIES = [0, 1, 2, 7, 255, 256, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 42) + 1, (1 << 61) + 1]
BOUNDARIES += [(1 << 63) - 1, 1 << 63, (1 << 64) - 1]
NAMES = ["", ".", "..", "../secret", "/etc/passwd", "a/b", "a\\b", "a\0b", "\ud800", "x" * 5000, "config.json", "é\n"]
VALUES: list[Any] = [*BOUNDARIES, -1, -(1 << 63), 0.5, 1e308, float("nan"), float("inf"), True, False, None, [], {}]
VALUES += [[[[[]]]], [1, "a"], {"a": {}}, *NAMES]


def rewrite(path: Path, content: bytes) -> None:
    """A file anew: one that has just been written and is cut to nothing waits for the disk first."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def damage_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """One change: a bit, a byte, a boundary number, a stretch removed, repeated or moved, or a cut."""
    if not content:
        return b"\0"
    at = int(rng.integers(len(content)))
    length = int(min(len(content) - at, 1 << int(rng.integers(0, 10))))
    piece = content[at : at + length]
    size, layout = [(1, "B"), (2, "<H"), (4, "<I"), (8, "<Q")][rng.integers(4)]
    number = struct.pack(layout, BOUNDARIES[rng.integers(len(BOUNDARIES))] % (1 << 8 * size))
    ways: list[Callable[[], bytes]] = [
        lambda: content[:at] + bytes([content[at] ^ 1 << int(rng.integers(8))]) + content[at + 1 :],
        lambda: content[:at] + rng.bytes(1) + content[at + 1 :],
        lambda: content[:at] + number + content[at + size :],
        lambda: content[:at] + number + content[at:],
        lambda: content[:at] + content[at + length :],
        lambda: content[:at] + piece + content[at:],
        lambda: content[:at] + rng.bytes(length) + content[at + length :],
        lambda: content[:at],
    ]
    return ways[rng.integers(len(ways))]()


def damage_value(value: Any, rng: np.random.Generator) -> Any:
    """A copy of a JSON-like value with one place in it changed: replaced, removed, repeated, or put elsewhere."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = list(value)[rng.integers(len(value))]
        changed = dict(value)
        way = rng.random()
        if way < 0.1:
            del changed[key]
        elif way < 0.2:
            changed[str(_pick(NAMES, rng))] = changed.pop(key)
        elif way < 0.3:
            changed[key] = value[list(value)[rng.integers(len(value))]]
        else:
            changed[key] = damage_value(value[key], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = int(rng.integers(len(value)))
        way = rng.random()
        if way < 0.1:
            return value[:at] + value[at + 1 :]
        if way < 0.2:
            return [*value[:at], value[at], *value[at:]]
        return [*value[:at], damage_value(value[at], rng), *value[at + 1 :]]
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return value + int(rng.integers(-9, 10))
    return _pick(VALUES, rng)


def damage_json(text: str, rng: np.random.Generator) -> bytes:
    """JSON with one or two places changed; now and then no JSON any more, or nested without end."""
    way = rng.random()
    if way < 0.15:
        return damage_bytes(text.encode(), rng)
    if way < 0.18:
        return [b"[" * 50_000, b'{"a":' * 50_000, b"9" * 5_000, text.encode() * 2, b"\xef\xbb\xbf" + text.encode()][
            rng.integers(5)
        ]
    value = json.loads(text)
    for _ in range(1 + int(rng.integers(2))):
        value = damage_value(value, rng)
    return json.dumps(value).encode()


def _pick(choices: list[Any], rng: np.random.Generator) -> Any:
    return choices[rng.integers(len(choices))]
