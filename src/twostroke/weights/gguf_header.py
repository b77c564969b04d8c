"""The header of a GGUF file: version, metadata and the table of tensors, each checked. Owns no file handle.

Layout (GGUF version 2 and 3, little-endian): magic, u32 version, u64 tensor count, u64 metadata count; the metadata as
key, u32 type, value; the tensors as name, u32 number of dimensions, u64 dimensions with the contiguous one first, u32
type, u64 offset in the data section; then, aligned to `general.alignment`, the data section.
"""

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twostroke.errors import UnsupportedModelError
from twostroke.weights.byte_cursor import ByteCursor
from twostroke.weights.source import TensorInfo
from twostroke.weights.tensor_types import TensorType

MetadataValue = bool | int | float | str | list[str] | npt.NDArray[np.generic]

_VERSIONS = (2, 3)
MAX_ENTRIES = 1 << 16  # metadata keys, and tensors of a model
_MAX_DIMS = 4
_DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20
# What a parsed entry takes in memory beside its value: key, dictionary slot, description.
_ENTRY_OVERHEAD = 512
_MIN_KEY_BYTES = 8 + 4 + 1  # name length, type, the smallest value
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8  # name length, dimensions count, one dimension, type, offset

_TYPES = {int(kind): kind for kind in TensorType if kind.is_in_gguf}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
BOOL, STRING, ARRAY = 7, 8, 9
# id of a metadata type -> its numbers
NUMBERS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: _U32,
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    BOOL: struct.Struct("<B"),
    10: _U64,
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}


class Header(NamedTuple):
    """A checked header. Tensor offsets are absolute; every tensor lies inside the file and overlaps no other.

    `num_bytes` is the size of the file.
    """

    num_bytes: int
    version: int
    alignment: int
    metadata: dict[str, MetadataValue]
    tensors: dict[str, TensorInfo]


def read_header(cursor: ByteCursor) -> Header:
    """Parse and check everything before the data section. Raises ModelFileError or UnsupportedModelError."""
    version = _read_version(cursor)
    num_tensors = cursor.count("tensor count", _MIN_TENSOR_BYTES, MAX_ENTRIES)
    num_keys = cursor.count("metadata count", _MIN_KEY_BYTES, MAX_ENTRIES)
    metadata: dict[str, MetadataValue] = {}
    for index in range(num_keys):
        key = _read_name(cursor, f"metadata key {index}")
        if key in metadata:
            raise cursor.error(f"metadata key {key!r} occurs twice")
        metadata[key] = _read_value(cursor, key)
    alignment = _alignment(cursor, metadata)
    tensors: dict[str, TensorInfo] = {}
    for index in range(num_tensors):
        tensor = _read_tensor(cursor, index)
        if tensor.name in tensors:
            raise cursor.error(f"tensor {tensor.name!r} occurs twice")
        tensors[tensor.name] = tensor
    return Header(cursor.size, version, alignment, metadata, _placed(cursor, tensors, alignment))


def _read_version(cursor: ByteCursor) -> int:
    magic = int(cursor.number(_U32, "magic"))
    if magic != int.from_bytes(b"GGUF", "little"):
        raise cursor.error(f"not a GGUF file: it begins with {magic.to_bytes(4, 'little')!r}")
    version = int(cursor.number(_U32, "version"))
    if version not in _VERSIONS:
        if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
            raise UnsupportedModelError(f"{cursor.path}: big-endian GGUF files are not supported")
        raise UnsupportedModelError(f"{cursor.path}: GGUF version {version} is not supported, only 2 and 3")
    return version


def _read_name(cursor: ByteCursor, what: str) -> str:
    """The name of a key or tensor, which also pays for its entry."""
    cursor.charge(_ENTRY_OVERHEAD, what)
    name = cursor.string(what)
    if not name:
        raise cursor.error(f"{what} has an empty name")
    return name


def _read_value(cursor: ByteCursor, key: str) -> MetadataValue:
    what = f"metadata {key!r}"
    kind = int(cursor.number(_U32, f"type of {what}"))
    if kind == STRING:
        return cursor.string(what)
    if kind == ARRAY:
        return _read_array(cursor, what)
    if kind not in NUMBERS:
        raise cursor.error(f"{what} has the unknown type {kind}")
    value = cursor.number(NUMBERS[kind], what)
    if kind != BOOL:
        return value
    if value > 1:
        raise cursor.error(f"{what} is a boolean of value {value}")
    return bool(value)


def _read_array(cursor: ByteCursor, what: str) -> MetadataValue:
    kind = int(cursor.number(_U32, f"item type of {what}"))
    if kind == ARRAY:
        raise cursor.error(f"{what} is an array of arrays")
    if kind == STRING:
        return cursor.strings(cursor.count(f"length of {what}", _U64.size), what)
    if kind not in NUMBERS:
        raise cursor.error(f"{what} has the unknown item type {kind}")
    number = NUMBERS[kind]
    values = cursor.numbers(number.format, cursor.count(f"length of {what}", number.size), what)
    if kind != BOOL:
        return values
    if np.any(values > np.uint8(1)):
        raise cursor.error(f"{what} holds a boolean that is neither 0 nor 1")
    return values.view(np.bool_)


def _alignment(cursor: ByteCursor, metadata: dict[str, MetadataValue]) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if isinstance(value, bool) or not isinstance(value, int):
        raise cursor.error(f"metadata 'general.alignment' is not an integer but {type(value).__name__}")
    if not 8 <= value <= _MAX_ALIGNMENT or value & (value - 1):
        raise cursor.error(f"metadata 'general.alignment' is {value:,}, not a power of two up to {_MAX_ALIGNMENT:,}")
    return value


def _read_tensor(cursor: ByteCursor, index: int) -> TensorInfo:
    """One entry of the tensor table. Its offset is still relative to the data section."""
    name = _read_name(cursor, f"tensor {index}")
    what = f"tensor {name!r}"
    num_dims = int(cursor.number(_U32, f"number of dimensions of {what}"))
    if not 1 <= num_dims <= _MAX_DIMS:
        raise cursor.error(f"{what} has {num_dims:,} dimensions, not 1 to {_MAX_DIMS}")
    dims = [int(cursor.number(_U64, f"dimension {i} of {what}")) for i in range(num_dims)]
    type_id = int(cursor.number(_U32, f"type of {what}"))
    offset = int(cursor.number(_U64, f"offset of {what}"))
    if type_id not in _TYPES:
        raise UnsupportedModelError(f"{cursor.path}: {what} has the unknown tensor type {type_id}")
    tensor_type = _TYPES[type_id]
    if dims[0] % tensor_type.block_size:
        block = f"{tensor_type.name} block of {tensor_type.block_size}"
        raise cursor.error(f"{what} has rows of {dims[0]:,} values, not a multiple of the {block}")
    num_bytes = tensor_type.row_bytes(dims[0])
    for dim in dims[1:]:
        num_bytes *= dim
    if num_bytes == 0:
        raise cursor.error(f"{what} has a dimension of 0: {dims}")
    return TensorInfo(name, tuple(reversed(dims)), tensor_type, offset, num_bytes)


def _placed(cursor: ByteCursor, tensors: dict[str, TensorInfo], alignment: int) -> dict[str, TensorInfo]:
    """The same tensors with absolute offsets, once these are aligned, inside the file and apart from each other."""
    data_start = -(-cursor.position // alignment) * alignment
    placed: dict[str, TensorInfo] = {}
    for name, t in tensors.items():
        if t.offset % alignment:
            raise cursor.error(f"tensor {name!r} has offset {t.offset:,}, not a multiple of the alignment {alignment}")
        placed[name] = TensorInfo(name, t.shape, t.type, data_start + t.offset, t.num_bytes)
    previous = None
    for t in sorted(placed.values(), key=lambda t: t.offset):
        if previous is not None and t.offset < previous.offset + previous.num_bytes:
            raise cursor.error(f"tensors {previous.name!r} and {t.name!r} overlap at byte {t.offset:,}")
        if t.offset + t.num_bytes > cursor.size:
            raise cursor.error(
                f"tensor {t.name!r} {list(t.shape)} {t.type.name} ends at byte {t.offset + t.num_bytes:,},"
                f" but the file has {cursor.size:,}: cut short or damaged"
            )
        previous = t
    return placed
