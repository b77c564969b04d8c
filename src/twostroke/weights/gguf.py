"""A GGUF model, memory-mapped: metadata, tensors and their bytes, from one file or from shards opened as one.

Owns the mappings; the parsing is in `gguf_header`, what shards are in `gguf_shards`. Opening reads and checks headers
only; a tensor's bytes are read from disk when they are touched.
"""

import mmap
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, ModelNotFoundError
from twostroke.weights.byte_cursor import ByteCursor
from twostroke.weights.gguf_header import Header, MetadataValue, read_header
from twostroke.weights.gguf_shards import joined, shard_paths
from twostroke.weights.source import TensorInfo

__all__ = ["GGUFFile", "MetadataValue", "check_gguf"]


class GGUFFile:
    """An open GGUF model; a `WeightSource`. A context manager. Make one with `GGUFFile.open`.

    `metadata` holds scalars as Python values, arrays of strings as lists, arrays of numbers as NumPy arrays. `tensors`
    is in file order. Of shards, `num_bytes` is the sum and `metadata` the first's.
    """

    def __init__(self, path: Path, header: Header, mappings: dict[str, mmap.mmap], files: ExitStack) -> None:
        self.path = path
        self.num_bytes = header.num_bytes
        self.version = header.version
        self.alignment = header.alignment
        self.metadata: dict[str, MetadataValue] = header.metadata
        self.tensors: dict[str, TensorInfo] = header.tensors
        self._mappings = mappings  # of each tensor, the file it is in
        self._files = files

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Map a file, or all shards of the model that it is a shard of, and check every header.

        Raises ModelNotFoundError when there is no such file, ModelFileError when one cannot be read, is damaged or cut
        short, or a shard is missing or foreign, UnsupportedModelError for a version, byte order or tensor type that is
        not known.
        """
        path = Path(path)
        with ExitStack() as files:
            mapping, header = _open(path, files)
            mappings = dict.fromkeys(header.tensors, mapping)
            paths = shard_paths(path, header)
            if len(paths) > 1:
                header = joined(_opened(paths, mappings, files), len(paths))
            return cls(path, header, mappings, files.pop_all())

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
        return np.frombuffer(self._mappings[name], np.uint8, info.num_bytes, info.offset)

    def release(self, name: str) -> None:
        """Drop the pages that hold only this tensor from memory. Views stay valid: touching them reads again."""
        info = self.info(name)
        page = mmap.PAGESIZE
        first = -(-info.offset // page) * page
        end = (info.offset + info.num_bytes) // page * page
        if end > first and hasattr(mmap, "MADV_DONTNEED"):
            self._mappings[name].madvise(mmap.MADV_DONTNEED, first, end - first)

    def close(self) -> None:
        """Unmap the files; `data` must not be called after. Where views are still held, the last of them unmaps it."""
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def check_gguf(path: Path) -> None:
    """Check one file's header, also that of a shard alone; raises as `GGUFFile.open` does."""
    with ExitStack() as files:
        _open(path, files)


def _opened(paths: Iterable[Path], mappings: dict[str, mmap.mmap], files: ExitStack) -> Iterator[tuple[Path, Header]]:
    """Open shards one after the other, noting which file each tensor is in."""
    for path in paths:
        mapping, header = _open(path, files)
        mappings.update(dict.fromkeys(header.tensors, mapping))
        yield path, header


def _open(path: Path, files: ExitStack) -> tuple[mmap.mmap, Header]:
    """Map a file and check its header; `files` unmaps it."""
    mapping = _map(path)
    files.callback(_unmap, mapping)
    return mapping, read_header(ByteCursor(mapping, path))


def _unmap(mapping: mmap.mmap) -> None:
    with suppress(BufferError):  # views are still held
        mapping.close()


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
