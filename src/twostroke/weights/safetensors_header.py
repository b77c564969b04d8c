"""The header of a safetensors file, checked: where each tensor lies. Owns no file handle.

Layout: a u64 length, that many bytes of JSON, then the tensors' bytes without gaps. The JSON maps names to dtype,
shape and begin and end in these bytes; `__metadata__` maps strings to strings.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from twostroke.errors import UnsupportedModelError
from twostroke.weights.byte_cursor import ByteCursor
from twostroke.weights.model_json import parse_object, text_limit

# dtype -> NumPy's; BF16 as its 16 bits, FP8 as its byte
DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "F8_E4M3": "|u1",
    "F8_E5M2": "|u1",
    "F8_E8M0": "|u1",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
_MAX_DIMS = 8
_LENGTH = struct.Struct("<Q")
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor as the file has it: `dtype` in the format's spelling, `offset` absolute in the file, in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


def read_header(cursor: ByteCursor) -> dict[str, RawTensor]:
    """The tensors in the order of their bytes, which fill the file exactly.

    Raises ModelFileError, or UnsupportedModelError for a dtype that is not known.
    """
    limit = min(_MAX_HEADER_BYTES, text_limit(cursor.size))
    length = cursor.count("length of the header", 1, limit)
    start = cursor.skip(length, "header")
    entries = parse_object(cursor.slice(start, length), f"{cursor.path}: header")
    entries.pop("__metadata__", None)
    data_start = start + length
    tensors = [_tensor(cursor, name, entry, data_start) for name, entry in entries.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.num_bytes))
    _check_places(cursor, tensors, data_start)
    return {tensor.name: tensor for tensor in tensors}


def _tensor(cursor: ByteCursor, name: str, entry: Any, data_start: int) -> RawTensor:
    what = f"tensor {name[:200]!r}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise cursor.error(f"{what} is not described by dtype, shape and data_offsets alone")
    dtype, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise UnsupportedModelError(f"{cursor.path}: {what} has the unknown dtype {str(dtype)[:40]!r}")
    if not _are_counts(shape) or len(shape) > _MAX_DIMS:
        raise cursor.error(f"{what} has a shape that is not up to {_MAX_DIMS} counts")
    if not _are_counts(place) or len(place) != 2 or place[0] > place[1]:
        raise cursor.error(f"{what} has data_offsets that are not a begin and an end")
    num_bytes = np.dtype(DTYPES[dtype]).itemsize
    for dim in shape:
        num_bytes *= dim
    if num_bytes != place[1] - place[0]:
        raise cursor.error(f"{what} {shape} {dtype} needs {num_bytes:,} bytes; its place has {place[1] - place[0]:,}")
    return RawTensor(name, dtype, tuple(shape), data_start + place[0], num_bytes)


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _check_places(cursor: ByteCursor, tensors: list[RawTensor], data_start: int) -> None:
    end, previous = data_start, "the header"
    for tensor in tensors:
        if tensor.offset != end:
            fault = "leaves a gap after" if tensor.offset > end else "overlaps"
            raise cursor.error(f"tensor {tensor.name!r} at byte {tensor.offset:,} {fault} {previous}, to {end:,}")
        end, previous = end + tensor.num_bytes, repr(tensor.name)
    if end > cursor.size:
        raise cursor.error(f"its tensors need {end:,} bytes, but the file has {cursor.size:,}: cut short or damaged")
    if end < cursor.size:
        raise cursor.error(f"{cursor.size - end:,} bytes follow the last tensor, which ends at byte {end:,}")
