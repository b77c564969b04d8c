"""GGUF files made by hand, byte by byte, so that they can also be wrong. Owns test data only."""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
LAYOUTS = dict(
    zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), ("B", "b", "H", "h", "I", "i", "f", "B", "Q", "q", "d"), strict=True)
)
F32, Q4_1, Q8_0, Q4_K = 0, 3, 8, 12


@dataclass(frozen=True)
class Field:
    """A number in the header that says how to read the rest: where it is, and its struct layout."""

    kind: str
    offset: int
    layout: str


class GGUFWriter:
    """Bytes of a file, and where its counts, sizes, types, lengths and offsets lie. Checks nothing."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.fields: list[Field] = []

    def number(self, kind: str, layout: str, value: float) -> None:
        self.fields.append(Field(kind, len(self.data), layout))
        self.data += struct.pack("<" + layout, value)

    def start(self, num_tensors: int, num_keys: int, version: int = 3) -> None:
        self.data += b"GGUF"
        self.number("version", "I", version)
        self.number("tensor count", "Q", num_tensors)
        self.number("key count", "Q", num_keys)

    def string(self, text: str | bytes) -> None:
        encoded = text.encode() if isinstance(text, str) else text
        self.number("string length", "Q", len(encoded))
        self.data += encoded

    def key(self, name: str | bytes, value_type: int, value: Any, item_type: int = 0) -> None:
        self.string(name)
        self.number("value type", "I", value_type)
        if value_type == STRING:
            self.string(value)
        elif value_type != ARRAY:
            kind = "alignment" if name == "general.alignment" else "value"
            self.number(kind, LAYOUTS.get(value_type, "I"), value)
        else:
            self.number("item type", "I", item_type)
            self.number("array length", "Q", len(value))
            for item in value:
                if item_type == STRING:
                    self.string(item)
                else:
                    self.data += struct.pack("<" + LAYOUTS.get(item_type, "I"), item)

    def tensor(self, name: str | bytes, dims: tuple[int, ...], type_id: int, offset: int) -> None:
        """An entry of the tensor table; `dims` in file order, the contiguous one first."""
        self.string(name)
        self.number("dimension count", "I", len(dims))
        for dim in dims:
            self.number("dimension", "Q", dim)
        self.number("tensor type", "I", type_id)
        self.number("tensor offset", "Q", offset)

    def body(self, num_bytes: int, alignment: int = 32) -> bytes:
        """The whole file, with a data section of `num_bytes` seeded random bytes."""
        padding = bytes(-len(self.data) % alignment)
        return bytes(self.data + padding) + np.random.default_rng(0).bytes(num_bytes)


def sound_file() -> tuple[bytes, list[Field]]:
    """A correct file with every metadata type and several tensors, and the fields that can be spoilt in it."""
    writer = GGUFWriter()
    writer.start(num_tensors=4, num_keys=18)
    writer.key("general.architecture", STRING, "llama")
    writer.key("general.alignment", UINT32, 64)
    numbers = {UINT8: 255, INT8: -128, UINT16: 65535, INT16: -2, UINT32: 7, INT32: -7, FLOAT32: 0.5, BOOL: 1}
    for value_type, value in (numbers | {UINT64: 1 << 60, INT64: -(1 << 60), FLOAT64: 1e300}).items():
        writer.key(f"number.{value_type}", value_type, value)
    writer.key("words", ARRAY, ["", "a", "Ġthe", "日本", "x" * 300], STRING)
    writer.key("zeros", ARRAY, ["a\0b", "\0", "é"], STRING)
    writer.key("floats", ARRAY, [0.25, -1.0], FLOAT32)
    writer.key("flags", ARRAY, [0, 1, 1], BOOL)
    writer.key("none", ARRAY, [], STRING)
    writer.tensor("token_embd.weight", (64, 8), Q8_0, 0)  # 8 rows of 2 blocks: 544 bytes
    writer.tensor("blk.0.attn_q.weight", (32, 5), Q4_1, 576)  # 100 bytes
    writer.tensor("blk.0.ffn_up.weight", (256, 3), Q4_K, 704)  # 432 bytes
    writer.tensor("output_norm.weight", (33,), F32, 1152)  # 132 bytes
    return writer.body(1284, alignment=64), writer.fields
