"""POST /v1/embeddings. Owns running texts for their hidden rows, a few at a time, and the response."""

import asyncio
import base64
from collections.abc import Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from twostroke.engine.events import Event, Finished
from twostroke.engine.request import Request as EngineRequest
from twostroke.errors import InvalidRequestError
from twostroke.llm.embedding import PooledRows, Vector
from twostroke.server.answer import ClientGone
from twostroke.server.errors import too_late
from twostroke.server.prepare import prompt_inputs
from twostroke.server.prepared import PromptInput
from twostroke.server.protocol.embeddings import EmbeddingRequest
from twostroke.server.service import Service
from twostroke.server.wire import json_bytes

_AT_ONCE = 32


async def answer_embeddings(service: Service, request: Request) -> Response:
    """The vectors of all inputs, in their order."""
    body = await service.read(request, EmbeddingRequest)
    rows = await service.prepare(lambda: _prepare(service, body))
    requests = [own for _, own in rows]
    at_once = min(_AT_ONCE, service.config.max_queued)
    service.admission.admit(requests, at_once=at_once)
    batch = _Batch(service, rows, at_once)
    service.lifecycle.add(batch)
    try:
        vectors = await batch.run(request)
    finally:
        service.lifecycle.remove(batch)
        service.admission.forget(requests)
    tokens = sum(len(own.prompt_ids) for own in requests)
    request.scope["state"]["notes"]["prompt_tokens"] = tokens
    data = [
        {"object": "embedding", "index": index, "embedding": _written(vector, body.encoding_format)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    fields = {"object": "list", "data": data, "model": body.model or service.names[0], "usage": usage}
    return Response(json_bytes(fields), media_type="application/json")


def _prepare(service: Service, body: EmbeddingRequest) -> list[tuple[PooledRows, EngineRequest]]:
    llm = service.llm
    settings = llm.embedding
    pooling = settings.choose(None)
    rows: list[tuple[PooledRows, EngineRequest]] = []
    for index, prompt in enumerate(prompt_inputs(llm, body.input, True)):
        ids = _ids(prompt, settings.end_ids)
        if not ids:
            raise InvalidRequestError(f"input[{index}] has no tokens")
        pooled = PooledRows(ids, pooling)
        request = pooled.request("")
        service.serving.prepare(request)
        rows.append((pooled, request))
    return rows


def _ids(prompt: PromptInput, end_ids: Sequence[int]) -> list[int]:
    """The ids, and those that the model wants after a text."""
    return [*prompt.ids, *(end_ids if prompt.text is not None else ())]


class _Batch:
    """Inputs of one request on their way, some queued at a time; the first error ends them all."""

    def __init__(self, service: Service, rows: Sequence[tuple[PooledRows, EngineRequest]], at_once: int) -> None:
        self._service = service
        self._at_once = at_once
        self._rows = rows
        self._num_open = len(rows)
        self._unsubmitted = iter(rows)
        self._submitted: list[EngineRequest] = []
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, request: Request) -> list[Vector]:
        """Vectors in the order of the inputs. Raises the error of a step that failed, or the one given to `fail`."""
        loop = asyncio.get_running_loop()
        gone = loop.create_task(self._watch(request))
        seconds = self._service.config.request_timeout
        late = loop.call_later(seconds, self.fail, too_late(seconds))
        try:
            for _ in range(self._at_once):
                self._submit_next()
            await self._done
        finally:
            gone.cancel()
            late.cancel()
            self._unsubmitted = iter(())
            for own in self._submitted:
                self._service.serving.cancel(own)
        unit = self._service.llm.embedding.normalize
        return [pooled.vector(unit) for pooled, _ in self._rows]

    def fail(self, error: BaseException) -> None:
        """Ends everything, and makes `run` raise."""
        if not self._done.done():
            self._done.set_exception(error)

    def _submit_next(self) -> None:
        for pooled, own in self._unsubmitted:
            self._submitted.append(own)
            self._service.admission.add(own)
            self._service.serving.submit(own, partial(self._take, pooled))
            return

    def _take(self, pooled: PooledRows, event: Event) -> None:
        try:
            self._read(pooled, event)
        except Exception as error:
            self.fail(error)

    def _read(self, pooled: PooledRows, event: Event) -> None:
        pooled.take(event)
        if isinstance(event, Finished):
            self._num_open -= 1
            self._submit_next()
            if event.request.error is not None:
                self.fail(event.request.error)
            if not self._num_open and not self._done.done():
                self._done.set_result(None)

    async def _watch(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.fail(ClientGone("the client closed the connection"))


def _written(vector: Vector, encoding: str | None) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4", copy=False).tobytes()).decode("ascii")
    numbers: list[float] = vector.tolist()
    return numbers
