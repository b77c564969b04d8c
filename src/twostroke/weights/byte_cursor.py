"""The bounded reader of a model file's header: the one place where a count, length or size from the file is used.

Owns the checks against the file's size and against a memory budget. It knows no format beyond GGUF's integers and
length-prefixed strings.
"""

import struct
import sys
from itertools import pairwise
from mmap import mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError

# Parsed metadata may take the file's size plus this; the rest of what a small process may use is left to temporaries.
_SPARE_BYTES = 48 << 20
# A string, or a run of strings read together, longer than this is damage, not text.
_MAX_TEXT_BYTES = 4 << 20
_STRINGS_AT_ONCE = 4096
# What a Python string takes beside its characters, and its place in a list.
_STRING_OVERHEAD = 64
_LENGTH_BYTES = 8

_U64 = struct.Struct("<Q")


class ByteCursor:
    """Reads a mapped file from the front. Every method raises ModelFileError, naming file and field, rather than pass
    the end, and `what` is the name of the field for that message."""

    def __init__(self, buffer: mmap, path: Path) -> None:
        self.path = path
        self.size = len(buffer)
        self.position = 0
        self._buffer = buffer
        self._budget = self.size + _SPARE_BYTES

    def error(self, message: str) -> ModelFileError:
        """An error whose message begins with the file."""
        return ModelFileError(f"{self.path}: {message}")

    def skip(self, num_bytes: int, what: str) -> int:
        """Move over `num_bytes` and return where they start; all other reads go through here."""
        start = self.position
        if num_bytes > self.size - start:
            raise self.error(f"{what} needs {num_bytes:,} bytes at byte {start:,}; the file ends at {self.size:,}")
        self.position = start + num_bytes
        return start

    def slice(self, start: int, num_bytes: int) -> bytes:
        """A copy of bytes that were skipped over."""
        return self._buffer[start : start + num_bytes]

    def charge(self, num_bytes: int, what: str) -> None:
        """Count memory that parsed values take; refuse what no sound file needs."""
        self._budget -= num_bytes
        if self._budget < 0:
            limit = self.size + _SPARE_BYTES
            raise self.error(f"{what} would bring the header's memory over {limit:,} bytes")

    def number(self, layout: struct.Struct, what: str) -> int | float:
        """One little-endian number."""
        value: int | float = layout.unpack_from(self._buffer, self.skip(layout.size, what))[0]
        return value

    def count(self, what: str, item_bytes: int, limit: int | None = None) -> int:
        """A u64 number of items that take at least `item_bytes` each in what is left of the file."""
        count = int(self.number(_U64, what))
        fits = (self.size - self.position) // item_bytes
        if count > fits:
            raise self.error(f"{what} is {count:,}; the file ends at {self.size:,}, with room for {fits:,}")
        if limit is not None and count > limit:
            raise self.error(f"{what} is {count:,}; at most {limit:,} are allowed")
        return count

    def numbers(self, dtype: npt.DTypeLike, count: int, what: str) -> npt.NDArray[np.generic]:
        """`count` numbers, copied out of the file."""
        item = np.dtype(dtype)
        self.charge(item.itemsize * count, what)
        start = self.skip(item.itemsize * count, what)
        return np.frombuffer(self._buffer, item, count, start).copy()

    def string(self, what: str) -> str:
        """One string: a u64 length, then UTF-8."""
        num_bytes = self.count(f"length of {what}", 1, _MAX_TEXT_BYTES)
        self.charge(4 * num_bytes + _STRING_OVERHEAD, what)
        start = self.skip(num_bytes, what)
        return self._decode(start, self.position, what)

    def strings(self, count: int, what: str) -> list[str]:
        """`count` strings in a row."""
        result: list[str] = []
        for first in range(0, count, _STRINGS_AT_ONCE):
            heads = self._string_heads(min(_STRINGS_AT_ONCE, count - first), first, what)
            result += self._decode_run(heads, first, what)
        return result

    def _string_heads(self, count: int, first: int, what: str) -> list[int]:
        """Where each of the next `count` strings has its length, and the end of the last; nothing is copied."""
        if heads := self._heads_of_short_strings(count):
            self.position = heads[-1]
            return heads
        buffer, length_at, position = self._buffer, _U64.unpack_from, self.position
        heads = [position]
        try:
            for _ in range(count):
                position += _LENGTH_BYTES + length_at(buffer, position)[0]
                heads.append(position)
        except (struct.error, OverflowError):
            pass  # the last position is beyond the file, which the check below reports
        if len(heads) <= count or position > self.size:
            raise self._overlong(heads, first, what)
        if position - self.position > _MAX_TEXT_BYTES:
            raise self.error(f"{what}[{first}...] holds {position - self.position:,} bytes in {count:,} strings")
        self.position = position
        return heads

    def _heads_of_short_strings(self, count: int) -> list[int] | None:
        """The same where every length is below 256, as those of vocabularies are: all but its first byte are 0."""
        buffer, position = self._buffer, self.position
        heads = [position]
        try:
            for _ in range(count):
                position += _LENGTH_BYTES + buffer[position]
                heads.append(position)
        except IndexError:
            return None
        if position > self.size:
            return None
        upper = np.array(heads[:-1])[:, None] + np.arange(1, _LENGTH_BYTES)
        return None if np.frombuffer(buffer, np.uint8)[upper].any() else heads

    def _overlong(self, heads: list[int], first: int, what: str) -> ModelFileError:
        """The error for the string that passes the end of the file."""
        index = next((i for i, end in enumerate(heads[1:]) if end > self.size), len(heads) - 1)
        needed = heads[index + 1] - heads[index] if index + 1 < len(heads) else _LENGTH_BYTES
        return self.error(
            f"{what}[{first + index}] needs {needed:,} bytes at byte {heads[index]:,}; the file ends at {self.size:,}"
        )

    def _decode_run(self, heads: list[int], first: int, what: str) -> list[str]:
        """Decode a run of strings at once: their lengths are blanked in a copy, which is decoded and split there."""
        start, end = heads[0], heads[-1]
        text = np.frombuffer(self._buffer, np.uint8, end - start, start).copy()
        lengths_at = np.array(heads[:-1])[:, None] - start + np.arange(_LENGTH_BYTES)
        text[lengths_at] = 0
        strings = None
        if np.count_nonzero(text == 0) == lengths_at.size:  # no string contains the character that separates them
            try:
                joined = text.tobytes().decode()
            except UnicodeDecodeError:
                pass  # decoded one by one below, to name the string
            else:
                self.charge(sys.getsizeof(joined) + _STRING_OVERHEAD * len(heads), what)
                strings = joined.split("\0" * _LENGTH_BYTES)[1:]
        if strings is None:
            self.charge(4 * text.size + _STRING_OVERHEAD * len(heads), what)
            bounds = enumerate(pairwise(heads), first)
            strings = [self._decode(a + _LENGTH_BYTES, b, f"{what}[{i}]") for i, (a, b) in bounds]
        return strings

    def _decode(self, start: int, end: int, what: str) -> str:
        try:
            return self._buffer[start:end].decode()
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not UTF-8 at byte {start + error.start:,}") from None
