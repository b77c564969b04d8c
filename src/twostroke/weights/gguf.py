"""A GGUF model, memory-mapped: metadata, tensors and their bytes, from one file or from shards opened as one.

Owns the mappings; the parsing is in `gguf_header`, what shards are in `gguf_shards`. Opening reads and checks headers
only; a tensor's bytes are read from disk when they are touched.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError
from twostroke.weights.gguf_header import Header, MetadataValue, read_header
from twostroke.weights.gguf_shards import joined, shard_paths
from twostroke.weights.mapped_file import MappedFile
from twostroke.weights.source import TensorInfo

__all__ = ["GGUFFile", "MetadataValue", "check_gguf"]


class GGUFFile:
    """An open GGUF model; a `WeightSource`. A context manager. Make one with `GGUFFile.open`.

    `metadata` holds scalars as Python values, arrays of strings as lists, arrays of numbers as NumPy arrays. `tensors`
    is in file order. Of shards, `num_bytes` is the sum and `metadata` the first's.
    """

    def __init__(self, path: Path, header: Header, files: dict[str, MappedFile], opened: ExitStack) -> None:
        self.path = path
        self.num_bytes = header.num_bytes
        self.version = header.version
        self.alignment = header.alignment
        self.metadata: dict[str, MetadataValue] = header.metadata
        self.tensors: dict[str, TensorInfo] = header.tensors
        self._files = files  # of each tensor, the file it is in
        self._opened = opened

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Map a file, or all shards of the model that it is a shard of, and check every header.

        Raises ModelNotFoundError when there is no such file, ModelFileError when one cannot be read, is damaged or cut
        short, or a shard is missing or foreign, UnsupportedModelError for a version, byte order or tensor type that is
        not known.
        """
        path = Path(path)
        with ExitStack() as opened:
            file, header = _open(path, opened)
            files = dict.fromkeys(header.tensors, file)
            paths = shard_paths(path, header)
            if len(paths) > 1:
                header = joined(_opened(paths, files, opened), len(paths))
            return cls(path, header, files, opened.pop_all())

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
        return self._files[name].view(info.offset, info.num_bytes)

    def release(self, name: str) -> None:
        """Drop the pages that hold only this tensor from memory. Views stay valid: touching them reads again."""
        info = self.info(name)
        self._files[name].release(info.offset, info.num_bytes)

    def close(self) -> None:
        """Unmap the files; `data` must not be called after. Where views are still held, the last of them unmaps it."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def check_gguf(path: Path) -> None:
    """Check one file's header, also that of a shard alone; raises as `GGUFFile.open` does."""
    with ExitStack() as opened:
        _open(path, opened)


def _opened(paths: Iterable[Path], files: dict[str, MappedFile], opened: ExitStack) -> Iterator[tuple[Path, Header]]:
    """Open shards one after the other, noting which file each tensor is in."""
    for path in paths:
        file, header = _open(path, opened)
        files.update(dict.fromkeys(header.tensors, file))
        yield path, header


def _open(path: Path, opened: ExitStack) -> tuple[MappedFile, Header]:
    """Map a file and check its header; `opened` unmaps it."""
    file = MappedFile(path)
    opened.callback(file.close)
    return file, read_header(file.cursor())
