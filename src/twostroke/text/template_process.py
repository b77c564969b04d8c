"""Processes that render chat templates, seen from this one. Owns starting them, the conversation, and what happens when
one takes too long; what runs inside is `template_worker.py`.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import IO, Any, cast

from twostroke.errors import ChatTemplateError, in_words

_MAX_WAIT_S = 10.0  # a worker ends by itself sooner; this is for a machine that gives it no time
_MAX_ANSWER_BYTES = 64 << 20  # the most that JSON makes of the text a template may write
_MAX_IDLE = 2
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from twostroke.text.template_worker import serve; serve()"


class TemplateRenderer:
    """Asks workers. Safe to share between threads: each request has a worker to itself, so that a template that takes
    too long delays nobody else. Workers end with this object, or with the program, whatever ends it."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = Lock()
        self._finalizer = weakref.finalize(self, _stop_all, self._idle)

    def start(self) -> None:
        """Starts a worker if none is waiting, and does not wait for it."""
        self._give_back(self._take())

    def ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        """The answer to `request`. Raises ChatTemplateError when the template fails or takes too long."""
        data = json.dumps(request).encode() + b"\n"
        worker = self._take()
        if not worker.is_running:  # ended while nobody asked it anything
            worker.stop()
            worker = _Worker()
        try:
            answer = worker.ask(data)
        except BaseException:
            worker.stop()
            raise
        self._give_back(worker)
        if "error" in answer:
            raise ChatTemplateError(str(answer["error"]))
        return answer

    def _take(self) -> "_Worker":
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _Worker()

    def _give_back(self, worker: "_Worker") -> None:
        with self._lock:
            if len(self._idle) < _MAX_IDLE:
                self._idle.append(worker)
                return
        worker.stop()


class _Worker:
    """One process. Not for several threads at once."""

    def __init__(self) -> None:
        package = str(Path(__file__).parents[2])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, package, *filter(None, sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # an interrupt from the terminal is for the parent
            )
        except OSError as error:
            said = in_words(error)
            raise ChatTemplateError(f"cannot start the process that renders chat templates: {said}") from None
        self._is_ready = False

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def ask(self, data: bytes) -> dict[str, Any]:
        """The answer to one line."""
        try:
            if not self._is_ready:
                self._line()
                self._is_ready = True
            cast("IO[bytes]", self._process.stdin).write(data)
            return cast("dict[str, Any]", json.loads(self._line()))
        except (OSError, EOFError, ValueError):
            raise ChatTemplateError(self._reason()) from None

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            cast("IO[bytes]", pipe).close()

    def _line(self) -> bytes:
        """The next line. Raises EOFError at the end of the process, TimeoutError after _MAX_WAIT_S, ValueError for one
        that is too long."""
        pipe = cast("IO[bytes]", self._process.stdout).fileno()
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        deadline = time.monotonic() + _MAX_WAIT_S
        line = bytearray()
        while not line.endswith(b"\n"):
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError
            piece = os.read(pipe, 1 << 16)
            if not piece:
                raise EOFError
            line += piece
            if len(line) > _MAX_ANSWER_BYTES:
                raise ValueError("answer too long")
        return bytes(line)

    def _reason(self) -> str:
        try:
            code = self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            return f"the chat template gives no answer in {_MAX_WAIT_S:.0f} s"
        if code == -signal.SIGPROF:
            return "the chat template takes too long: it may take half a second"
        if not self._is_ready:
            return f"cannot start the process that renders chat templates (exit status {code})"
        return f"the chat template ended its process (exit status {code})"


def _stop_all(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.stop()
