"""DiskTier: named blocks as files of one directory. Owns their form, their total size and the thread that writes them.

A file is a header (magic, CRC-32 of all that follows, sizes), the block's content as in its key, and its bytes. It gets
its name, the key's digest, once it is whole. Whatever is not exactly that is deleted and was never there.
"""

import logging
import os
import struct
import zlib
from collections import OrderedDict
from pathlib import Path
from queue import Full, Queue
from threading import Lock, Thread

import numpy as np
import numpy.typing as npt

from twostroke.errors import ConfigError
from twostroke.kvcache.chain import BlockKey

BlockBytes = npt.NDArray[np.uint8]
_HEADER = struct.Struct("<8sIIQ")  # magic, CRC-32, bytes of content, bytes of data
_MAGIC = b"2strkKV1"
_SUFFIX, _PARTIAL = ".kv", ".part"
_NUM_QUEUED = 64  # blocks that wait to be written at most; more are not kept

_logger = logging.getLogger(__name__)


class DiskTier:
    """Blocks of `block_bytes` bytes under `directory`, at most `max_bytes` of files; the oldest used give way.

    What an earlier process left there is found again. One process at a time should use a directory; two would only
    count its size wrongly. Raises ConfigError where the directory cannot be made or read.
    """

    def __init__(self, directory: Path, max_bytes: int, block_bytes: int) -> None:
        self._directory, self._max_bytes, self._block_bytes = directory, max_bytes, block_bytes
        self._lock = Lock()  # guards all below
        self._sizes: OrderedDict[str, int] = OrderedDict()  # by digest, oldest use first
        self._pending: dict[str, tuple[BlockKey, BlockBytes]] = {}
        self._queue: Queue[str | None] = Queue(_NUM_QUEUED)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._find_files()
        except OSError as error:
            raise ConfigError(f"KV directory {directory}: {error.strerror}") from None
        self._total = sum(self._sizes.values())
        self._writer = Thread(target=self._write_queued, name="kv-disk", daemon=True)
        self._writer.start()

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        with self._lock:
            return self._total

    def has(self, key: BlockKey) -> bool:
        """A block of that name is there, or waits to be written; `get` may still find it damaged."""
        name = key.digest.hex()
        with self._lock:
            return name in self._sizes or name in self._pending

    def put(self, key: BlockKey, data: BlockBytes, *, wait: bool = False) -> None:
        """Keeps a block, written later by another thread; dropped where too many wait, unless this call may wait."""
        name = key.digest.hex()
        with self._lock:
            if name in self._pending or name in self._sizes:
                return
            self._pending[name] = key, data
        try:
            self._queue.put(name, block=wait)
        except Full:
            with self._lock:
                del self._pending[name]
            _logger.debug("block %s is not kept: %d wait for the disk", name[:16], _NUM_QUEUED)

    def get(self, key: BlockKey) -> BlockBytes | None:
        """The block's bytes, checked; None where it is not there, or not as it was written."""
        name = key.digest.hex()
        with self._lock:
            if name in self._pending:
                return self._pending[name][1]
            if name not in self._sizes:
                return None
            self._sizes.move_to_end(name)
        path = self._path(name)
        try:
            data = _decode(path.read_bytes(), key, self._block_bytes)
            if data is not None:
                os.utime(path)
                return data
        except OSError as error:
            _logger.debug("%s cannot be read: %s", path, error)
        self._forget(name)
        return None

    def close(self) -> None:
        """Writes what waits, and ends the thread."""
        self._queue.put(None)
        self._writer.join()

    def _find_files(self) -> None:
        found = []
        for path in self._directory.iterdir():
            if path.suffix == _PARTIAL:
                path.unlink(missing_ok=True)
            elif path.suffix == _SUFFIX:
                stat = path.stat()
                found.append((stat.st_mtime_ns, path.stem, stat.st_size))
        self._sizes.update((name, size) for _, name, size in sorted(found))

    def _write_queued(self) -> None:
        while (name := self._queue.get()) is not None:
            key, data = self._pending[name]
            try:
                self._write(name, _encode(key, data))
            except OSError as error:  # a full or lost disk costs speed, nothing else
                _logger.warning("KV block not written to %s: %s", self._directory, error)
            with self._lock:
                del self._pending[name]

    def _write(self, name: str, content: bytes) -> None:
        if len(content) > self._max_bytes:
            return
        while (oldest := self._oldest_beyond(self._max_bytes - len(content))) is not None:
            self._forget(oldest)
        partial = self._path(name).with_suffix(_PARTIAL)
        partial.write_bytes(content)
        partial.replace(self._path(name))
        with self._lock:
            self._sizes[name] = len(content)
            self._total += len(content)

    def _oldest_beyond(self, num_bytes: int) -> str | None:
        """The file used longest ago, where all together have more bytes; None where they do not."""
        with self._lock:
            return next(iter(self._sizes)) if self._total > num_bytes else None

    def _forget(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)
        with self._lock:
            self._total -= self._sizes.pop(name, 0)

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"


def _encode(key: BlockKey, data: BlockBytes) -> bytes:
    body = key.content + data.tobytes()
    return _HEADER.pack(_MAGIC, zlib.crc32(body), len(key.content), data.size) + body


def _decode(content: bytes, key: BlockKey, block_bytes: int) -> BlockBytes | None:
    """The block's bytes where the file is whole, unchanged and of this very key; else None."""
    if len(content) != _HEADER.size + len(key.content) + block_bytes:
        return None
    magic, checksum, key_bytes, data_bytes = _HEADER.unpack_from(content)
    body = memoryview(content)[_HEADER.size :]
    is_right = (magic, key_bytes, data_bytes) == (_MAGIC, len(key.content), block_bytes)
    if not is_right or body[:key_bytes] != key.content or zlib.crc32(body) != checksum:
        return None
    return np.frombuffer(body[key_bytes:], np.uint8)
