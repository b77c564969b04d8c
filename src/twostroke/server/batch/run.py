"""A batch run: lines in, lines out, many under way at a time. Owns their going through the application, and the counts.

Lines are answered by the server's own application, so that a body is refused, run and answered as over HTTP.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from twostroke.errors import ConfigError, TwostrokeError
from twostroke.llm.llm import LLM
from twostroke.server.app import build_app
from twostroke.server.auth import Keys
from twostroke.server.batch.inside import post
from twostroke.server.batch.lines import MAX_LINE, BatchLine, batch_lines
from twostroke.server.batch.output import BatchOutput, request_id
from twostroke.server.config import ServerConfig
from twostroke.server.errors import ENGINE_STOPPED, ApiError
from twostroke.server.protocol.batch import BatchRequest
from twostroke.server.run import make_service
from twostroke.server.wire import json_bytes

_FOREVER_S = 1e8
_LOOK_S = 0.5


@dataclass(slots=True)
class BatchCounts:
    """How far a run is. `num_kept` of the lines were answered before it; `num_failed` of those it answered are errors,
    which count as answers. Tokens are those of this run."""

    num_lines: int = 0
    num_kept: int = 0
    num_answered: int = 0
    num_failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


def survey(path: Path, output: BatchOutput) -> BatchCounts:
    """The lines there are, and those that are answered. Raises ConfigError where the output is not this input's."""
    counts = BatchCounts()
    custom_ids: set[str] = set()
    for line in batch_lines(path):
        counts.num_lines += 1
        counts.num_kept += output.has(line)
        if line.custom_id is not None:
            custom_ids.add(line.custom_id)
    if not counts.num_lines:
        raise ConfigError(f"{path} has no requests")
    if (foreign := output.foreign(custom_ids)) is not None:
        raise ConfigError(
            f"{output.path} answers the custom_id {foreign!r}, which {path} does not have: give another output"
        )
    return counts


class BatchRun:
    """The lines of one file that have no answer yet. `told` is called after each answer."""

    def __init__(self, path: Path, output: BatchOutput, counts: BatchCounts, told: Callable[[], None]) -> None:
        self._path = path
        self._output = output
        self._counts = counts
        self._told = told

    async def run(self, llm: LLM, names: tuple[str, ...]) -> None:
        """Answers them all, as many at a time as keep the engine busy. Cancelled, it leaves the others for later.

        Raises OSError where the output cannot be written, TwostrokeError where the engine has stopped.
        """
        config = ServerConfig(
            max_queued=1_000_000,
            max_queued_tokens=10**9,
            max_body=MAX_LINE,
            request_timeout=_FOREVER_S,
            prepare_timeout=_FOREVER_S,
        )
        service = make_service(llm, config, names)
        app = build_app(service, Keys())
        lines = (line for line in batch_lines(self._path) if not self._output.has(line))
        tasks = [asyncio.ensure_future(self._answer_all(app, lines)) for _ in range(2 * llm.config.max_batch)]
        tasks.append(asyncio.ensure_future(_watch(lambda: service.serving.is_alive, tasks.copy())))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            service.workers.close()
            service.serving.stop()

    async def _answer_all(self, app: ASGIApp, lines: Iterator[BatchLine]) -> None:
        """Takes line after line; several tasks share them."""
        for line in lines:
            if line.request is None:
                self._output.tell_fault(line)
                self._counts.num_failed += 1
            else:
                status, body = await _answer(app, line, line.request)
                if status == 500 and body["error"].get("code") == ENGINE_STOPPED:
                    raise _engine_stopped()
                self._output.answer(line, status, body)
                self._count(status, body)
            self._counts.num_answered += 1
            self._told()

    def _count(self, status: int, body: dict[str, Any]) -> None:
        if status != 200:
            self._counts.num_failed += 1
            return
        self._counts.prompt_tokens += body["usage"]["prompt_tokens"]
        self._counts.completion_tokens += body["usage"].get("completion_tokens", 0)


async def _answer(app: ASGIApp, line: BatchLine, request: BatchRequest) -> tuple[int, dict[str, Any]]:
    if request.body.get("stream"):
        refusal = ApiError(400, "stream is not possible in a batch", "unsupported_parameter", "stream")
        return refusal.status, refusal.body()
    headers = {"content-type": "application/json", "x-request-id": request_id(line)}
    status, data = await post(app, request.url, json_bytes(request.body), headers)
    body: dict[str, Any] = json.loads(data)
    return status, body


async def _watch(is_alive: Callable[[], bool], tasks: Sequence["asyncio.Future[None]"]) -> None:
    """Raises once the engine's thread has ended with lines under way: nobody would answer them."""
    while not all(task.done() for task in tasks):
        if not is_alive():
            raise _engine_stopped()
        await asyncio.wait(tasks, timeout=_LOOK_S)


def _engine_stopped() -> TwostrokeError:
    """What ends the run; a line it met is not answered, so that a later run takes it again."""
    return TwostrokeError("the engine has stopped; what was answered is kept")
