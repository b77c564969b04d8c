"""A batch's output file: what it holds already, and one whole line more at a time. Owns its form, repair and lock.

Whatever ends a run, the file has whole lines but perhaps for its last; that one is cut off when the next run opens it.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import Any, Self

from twostroke.errors import ConfigError
from twostroke.server.batch.lines import BatchLine
from twostroke.server.wire import json_bytes


class BatchOutput:
    """Use it as a context manager. `num_cut` bytes of a last line that was not whole were cut off.

    Raises ConfigError where the file cannot be written, is no batch's output, or another run writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ids: set[str] = set()
        self._faults: set[int] = set()
        if path.exists() and not path.is_file():
            raise ConfigError(f"cannot write {path}: it is no file")
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.num_cut = self._read()
        except BlockingIOError:
            self.close()
            raise ConfigError(f"{path} is being written by another run") from None
        except BaseException:
            self.close()
            raise

    def has(self, line: BatchLine) -> bool:
        """The line was answered, or its fault told."""
        return line.number in self._faults if line.request is None else line.custom_id in self._ids

    def foreign(self, custom_ids: set[str]) -> str | None:
        """A custom_id answered here that is not among these."""
        return min(self._ids - custom_ids, default=None)

    def answer(self, line: BatchLine, status: int, body: Any) -> None:
        """Writes an answer, an error of the endpoint's among them. Raises OSError."""
        response = {"status_code": status, "request_id": request_id(line), "body": body}
        self._write({"id": _id(line), "custom_id": line.custom_id, "response": response, "error": None})

    def tell_fault(self, line: BatchLine) -> None:
        """Writes what is wrong with a line that is no request. Raises OSError."""
        if line.fault is not None:
            fault = line.fault
            error = {"code": fault.code, "message": fault.message, "param": fault.param, "line": line.number}
            self._write({"id": _id(line), "custom_id": line.custom_id, "response": None, "error": error})

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, fields: dict[str, Any]) -> None:
        data = memoryview(json_bytes(fields) + b"\n")
        while data:
            data = data[os.write(self._file, data) :]

    def _read(self) -> int:
        end = 0
        with open(self._file, "rb", closefd=False) as file:
            for number, data in enumerate(file, 1):
                is_whole = data.endswith(b"\n")
                if is_whole and data.strip():
                    self._enter(number, data)
                if is_whole:
                    end += len(data)
            num_cut = file.tell() - end
        if num_cut:
            os.ftruncate(self._file, end)
        return num_cut

    def _enter(self, number: int, data: bytes) -> None:
        try:
            fields = json.loads(data)
            error = fields["error"]
            if error is None:
                self._ids.add(str(fields["custom_id"]))
            else:
                self._faults.add(int(error["line"]))
        except (ValueError, TypeError, KeyError):
            raise ConfigError(f"line {number} of {self.path} is no answer of a batch: give another file") from None


def _id(line: BatchLine) -> str:
    return f"batch_req_{line.number:06}"


def request_id(line: BatchLine) -> str:
    """The id that the request is run under."""
    return f"req-{line.number:06}"
