"""A file that is being fetched: it grows as NAME.part, survives interruptions, and gets its name once it is proved.

Owns the bytes on disk, their running SHA-256, and the journal (NAME.part.json) that says up to where they can be
trusted. Knows nothing of where they come from.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from twostroke.errors import ChecksumError, FetchError
from twostroke.weights.cache import write_atomically

_CHUNK_BYTES = 1 << 20


class PartialFile:
    """Appends to TARGET.part. A context manager; the caller holds the model's lock.

    `mark` is the caller's note of what the bytes up to the last checkpoint are: how many packages, or which version of
    the file on a server. Bytes after the last checkpoint are dropped when the file is opened again.
    """

    def __init__(self, target: Path, on_checked: Callable[[int], None]) -> None:
        """Open or create the part; `on_checked` hears how many of the bytes already there have been summed."""
        self.target = target
        self.path = target.with_name(target.name + ".part")
        self.mark = ""
        self.num_bytes = 0
        self._journal = target.with_name(target.name + ".part.json")
        self._hash = hashlib.sha256()
        with disk_errors(self.path):
            self._file = self.path.open("r+b" if self.path.exists() else "w+b", buffering=0)
            self._recover(on_checked)

    def write(self, data: bytes) -> None:
        """Append. Raises FetchError when the disk refuses."""
        with disk_errors(self.path):
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        self._hash.update(data)
        self.num_bytes += len(data)

    def checkpoint(self, mark: str) -> None:
        """Make everything written so far survive an interruption, described by `mark`."""
        self.mark = mark
        record = {"mark": mark, "num_bytes": self.num_bytes, "sha256": self._hash.hexdigest()}
        with disk_errors(self.path):
            os.fsync(self._file.fileno())
            write_atomically(self._journal, json.dumps(record))

    def restart(self) -> None:
        """Forget all bytes."""
        with disk_errors(self.path):
            self._journal.unlink(missing_ok=True)
            self._file.seek(0)
            self._file.truncate()
        self.mark, self.num_bytes, self._hash = "", 0, hashlib.sha256()

    def verify(self, num_bytes: int | None, sha256: str | None) -> str:
        """Compare with the published size and sum, where known; returns the sum. Raises ChecksumError."""
        found = self._hash.hexdigest()
        if num_bytes is not None and num_bytes != self.num_bytes:
            self.discard()
            raise ChecksumError(f"{self.target.name}: {self.num_bytes:,} bytes were fetched, expected {num_bytes:,}")
        if sha256 is not None and sha256 != found:
            self.discard()
            raise ChecksumError(f"{self.target.name}: SHA-256 is {found}, expected {sha256}")
        return found

    def commit(self) -> None:
        """Give the file its name, durably."""
        with disk_errors(self.target):
            os.fsync(self._file.fileno())
            self._file.close()
            self.path.replace(self.target)
            _sync_directory(self.target.parent)
            self._journal.unlink(missing_ok=True)

    def discard(self) -> None:
        """Delete the part and its journal."""
        self._file.close()
        self._journal.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def _recover(self, on_checked: Callable[[int], None]) -> None:
        """Take up what an earlier fetch left, as far as its journal vouches for it."""
        mark, num_bytes, sha256 = _read_journal(self._journal)
        while self.num_bytes < num_bytes:
            chunk = self._file.read(min(_CHUNK_BYTES, num_bytes - self.num_bytes))
            if not chunk:
                break
            self._hash.update(chunk)
            self.num_bytes += len(chunk)
            on_checked(self.num_bytes)
        if (self.num_bytes, self._hash.hexdigest()) == (num_bytes, sha256):
            self.mark = mark
            self._file.truncate(num_bytes)
        else:
            self.restart()


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError about the disk (full, not permitted) into a FetchError that names `path`."""
    try:
        yield
    except OSError as error:
        raise FetchError(f"{path}: {error.strerror or error}") from None


def _read_journal(path: Path) -> tuple[str, int, str]:
    """(mark, num_bytes, sha256) of the last checkpoint; a missing or damaged journal vouches for nothing."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        record = json.loads(path.read_text("utf-8"))
        return str(record["mark"]), int(record["num_bytes"]), str(record["sha256"])
    return "", 0, ""


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
