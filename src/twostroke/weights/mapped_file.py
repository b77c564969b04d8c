"""A file mapped into memory, read-only: views of its bytes and giving pages back. Owns no format."""

import errno
import mmap
import stat
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, ModelNotFoundError, NotEnoughMemoryError, in_words
from twostroke.weights.byte_cursor import ByteCursor


class MappedFile:
    """The bytes of a regular file; nothing is read before it is touched."""

    def __init__(self, path: Path) -> None:
        """Raises ModelNotFoundError when there is no such file; NotEnoughMemoryError, ModelFileError when it cannot be
        mapped."""
        self.path = path
        self._mapping = _map(path)
        self.num_bytes = len(self._mapping)

    def cursor(self) -> ByteCursor:
        """A bounded reader from the front."""
        return ByteCursor(self._mapping, self.path)

    def view(self, offset: int, num_bytes: int) -> npt.NDArray[np.uint8]:
        """A read-only view of (num_bytes,) uint8; nothing is copied."""
        return np.frombuffer(self._mapping, np.uint8, num_bytes, offset)

    def release(self, offset: int, num_bytes: int) -> None:
        """Drop the pages that hold only these bytes from memory. Views stay valid: touching them reads again."""
        page = mmap.PAGESIZE
        first = -(-offset // page) * page
        end = (offset + num_bytes) // page * page
        if end > first and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED, first, end - first)

    def close(self) -> None:
        """Unmap; `view` must not be called after. Where views are still held, the last of them unmaps the file."""
        with suppress(BufferError):
            self._mapping.close()


def _map(path: Path) -> mmap.mmap:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise ModelFileError(f"{path}: not a regular file")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelNotFoundError(f"{path}: no such file") from None
    except ValueError as error:
        reason = "its name holds a null character" if "null" in str(error) else "the file is empty"
        raise ModelFileError(f"{path!s}: {reason}") from None
    except OSError as error:
        if error.errno == errno.ENOMEM:
            size = path.stat().st_size
            refused = f"the system refuses to map {size:,} bytes (`ulimit -v`?)"
            raise NotEnoughMemoryError(f"{path}: not enough memory: {refused}") from None
        raise ModelFileError(f"{path}: {in_words(error)}") from None
