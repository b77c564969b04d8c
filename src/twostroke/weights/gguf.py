"""A GGUF file, memory-mapped: metadata, tensors and their bytes. Owns the mapping; the parsing is in `gguf_header`.

Opening reads and checks the header only; a tensor's bytes are read from disk when they are touched.
"""

import mmap
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, ModelNotFoundError
from twostroke.weights.byte_cursor import ByteCursor
from twostroke.weights.gguf_header import Header, MetadataValue, read_header
from twostroke.weights.source import TensorInfo

__all__ = ["GGUFFile", "MetadataValue"]


class GGUFFile:
    """An open GGUF file; a `WeightSource`. A context manager. Make one with `GGUFFile.open`.

    `metadata` holds scalars as Python values, arrays of strings as lists, arrays of numbers as NumPy arrays. `tensors`
    is in file order.
    """

    def __init__(self, path: Path, mapping: mmap.mmap, header: Header) -> None:
        self.path = path
        self.num_bytes = len(mapping)
        self.version = header.version
        self.alignment = header.alignment
        self.metadata: dict[str, MetadataValue] = header.metadata
        self.tensors: dict[str, TensorInfo] = header.tensors
        self._mapping = mapping

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Map a file and check its whole header.

        Raises ModelNotFoundError when there is no such file, ModelFileError when it cannot be read or is damaged or
        cut short, UnsupportedModelError for a version, byte order or tensor type that is not known.
        """
        path = Path(path)
        mapping = _map(path)
        try:
            return cls(path, mapping, read_header(ByteCursor(mapping, path)))
        except BaseException:
            mapping.close()
            raise

    @property
    def names(self) -> Iterable[str]:
        """Tensor names, in file order."""
        return self.tensors.keys()

    def info(self, name: str) -> TensorInfo:
        """Shape, type and place of a tensor. Raises ModelFileError when the file has none of that name."""
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelFileError(f"{self.path}: tensor {name!r} is missing") from None

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        """The tensor's packed bytes, (num_bytes,) uint8: a read-only view of the mapping, nothing is copied."""
        info = self.info(name)
        return np.frombuffer(self._mapping, np.uint8, info.num_bytes, info.offset)

    def release(self, name: str) -> None:
        """Drop the pages that hold only this tensor from memory. Views stay valid: touching them reads again."""
        info = self.info(name)
        page = mmap.PAGESIZE
        first = -(-info.offset // page) * page
        end = (info.offset + info.num_bytes) // page * page
        if end > first and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED, first, end - first)

    def close(self) -> None:
        """Unmap the file; `data` must not be called after. Where views are still held, the last of them unmaps it."""
        with suppress(BufferError):
            self._mapping.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _map(path: Path) -> mmap.mmap:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise ModelFileError(f"{path}: not a regular file")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelNotFoundError(f"{path}: no such file") from None
    except ValueError:
        raise ModelFileError(f"{path}: the file is empty") from None
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from None
