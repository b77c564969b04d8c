"""Writing a GGUF file (version 3): metadata and tensors, one tensor in memory at a time. Owns the file's layout only.

The file gets its name when it is complete and on the disk; until then, and after an error, there is none of that name.
"""

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError
from twostroke.weights.gguf_header import ARRAY, BOOL, NUMBERS, STRING, MetadataValue
from twostroke.weights.tensor_types import TensorType

_VERSION = 3
_ALIGNMENT = 32
_FLOAT32, _FLOAT64 = 6, 12
# The first of these that holds a Python integer is its type: u32 is what other engines expect of counts and ids.
_INTEGERS = ((4, 0, 1 << 32), (5, -(1 << 31), 1 << 31), (10, 0, 1 << 64), (11, -(1 << 63), 1 << 63))


def write_gguf(
    path: Path,
    metadata: Mapping[str, MetadataValue | np.generic],
    tensors: Mapping[str, tuple[TensorType, tuple[int, ...]]],
    data: Callable[[str], npt.NDArray[np.uint8]],
    alignment: int = _ALIGNMENT,
) -> None:
    """Write a model.

    `tensors` gives each one's type and shape (NumPy order); `data` is called once a tensor, in their order, and returns
    its packed bytes. A NumPy scalar is written in its own type; a Python integer as u32 where it fits, a float as f32
    where that is exact. `general.alignment` is added where it is not the format's default. Raises ModelFileError when
    the disk refuses, ValueError for a value or size that the format cannot hold.
    """
    entries = {key: value for key, value in metadata.items() if key != "general.alignment"}
    if alignment != _ALIGNMENT:
        entries["general.alignment"] = alignment
    with _named_when_done(path) as file:
        file.write(b"GGUF" + struct.pack("<IQQ", _VERSION, len(tensors), len(entries)))
        for key, value in entries.items():
            file.write(_string(key) + _value(key, value))
        _write_table(file, tensors, alignment)
        for name, (kind, shape) in tensors.items():
            _pad(file, alignment)
            packed = data(name)
            if packed.nbytes != _num_bytes(name, kind, shape):
                raise ValueError(f"tensor {name!r} has {packed.nbytes} bytes, not {_num_bytes(name, kind, shape)}")
            file.write(np.ascontiguousarray(packed).data)
        _pad(file, alignment)


@contextmanager
def _named_when_done(path: Path) -> Iterator[BinaryIO]:
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def _write_table(file: BinaryIO, tensors: Mapping[str, tuple[TensorType, tuple[int, ...]]], alignment: int) -> None:
    offset = 0
    for name, (kind, shape) in tensors.items():
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        file.write(_string(name) + dims + struct.pack("<IQ", kind, offset))
        offset += -(-_num_bytes(name, kind, shape) // alignment) * alignment


def _num_bytes(name: str, kind: TensorType, shape: tuple[int, ...]) -> int:
    if not shape or shape[-1] % kind.block_size or 0 in shape:
        raise ValueError(
            f"tensor {name!r} of shape {list(shape)} cannot be {kind.name}, of blocks of {kind.block_size}"
        )
    num_bytes = kind.row_bytes(shape[-1])
    for dim in shape[:-1]:
        num_bytes *= dim
    return num_bytes


def _pad(file: BinaryIO, alignment: int) -> None:
    file.write(bytes(-file.tell() % alignment))


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(key: str, value: MetadataValue | np.generic) -> bytes:
    """The type of a value, and the value."""
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    if isinstance(value, list):
        head = struct.pack("<IIQ", ARRAY, STRING, len(value))
        return head + b"".join(map(_string, value))
    if isinstance(value, np.ndarray):
        kind = _numpy_kind(key, value.dtype)
        return struct.pack("<IIQ", ARRAY, kind, value.size) + value.astype(value.dtype.newbyteorder("<")).tobytes()
    kind = _numpy_kind(key, value.dtype) if isinstance(value, np.generic) else _python_kind(key, value)
    number = value.item() if isinstance(value, np.generic) else value
    return struct.pack("<I", kind) + NUMBERS[kind].pack(number)


def _numpy_kind(key: str, dtype: np.dtype[np.generic]) -> int:
    """The metadata type of a NumPy number."""
    if dtype == np.bool_:
        return BOOL
    for kind, layout in NUMBERS.items():
        if kind != BOOL and np.dtype(layout.format) == dtype:
            return kind
    raise ValueError(f"metadata {key!r}: {dtype} is no type of the format")


def _python_kind(key: str, value: bool | int | float) -> int:
    """The metadata type of a Python number, which holds it exactly."""
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            is_exact = value != value or float(np.float32(value)) == value
        return _FLOAT32 if is_exact else _FLOAT64
    for kind, lowest, end in _INTEGERS:
        if lowest <= value < end:
            return kind
    raise ValueError(f"metadata {key!r}: {value} needs more than 64 bits")
