"""Service: what the endpoints share. Owns how a request is read, and how a prepared one is run and accounted for."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from twostroke.errors import TwostrokeError
from twostroke.llm.llm import LLM
from twostroke.llm.serving import Serving
from twostroke.server.activity import Activity
from twostroke.server.answer import Answer, Patience
from twostroke.server.config import ServerConfig
from twostroke.server.dialect import Dialect
from twostroke.server.errors import ApiError, api_error, unknown_model
from twostroke.server.form import Form
from twostroke.server.head import Head
from twostroke.server.job import Job
from twostroke.server.lifecycle import Lifecycle
from twostroke.server.limits import Admission
from twostroke.server.metrics import Metrics
from twostroke.server.parse import Parsed, parse
from twostroke.server.prepared import Prepared
from twostroke.server.protocol.fields import RequestModel
from twostroke.server.roof_watch import RoofWatch
from twostroke.server.timings import roof_fractions
from twostroke.server.workers import Workers

M = TypeVar("M", bound=RequestModel)
T = TypeVar("T")
_PROGRESS_S = 0.5


@dataclass(frozen=True)
class Service:
    """One model served. Belongs to the event loop's thread."""

    serving: Serving
    dialect: Dialect
    config: ServerConfig
    names: tuple[str, ...]
    lifecycle: Lifecycle
    admission: Admission
    workers: Workers
    metrics: Metrics
    activity: Activity
    roofs: RoofWatch = field(default_factory=RoofWatch)
    started: int = field(default_factory=lambda: int(time.time()))

    @property
    def llm(self) -> LLM:
        return self.serving.llm

    async def read(self, request: Request, model: type[M]) -> M:
        """The request's body. Raises ApiError: 400, 404 for a model of another name, 408, 413."""
        data = await self._body(request)
        parsed = await self._off_loop(lambda: parse(data, model, lenient=self.config.lenient), len(data))
        return self._checked(request, parsed)

    async def prepare(self, function: Callable[[], T]) -> T:
        """Runs what takes time in a worker. Raises its errors as ApiErrors, and 429 where too many wait."""
        self.admission.enter()
        try:
            return await self.workers.run(function)
        except TwostrokeError as error:
            raise api_error(error) from None
        finally:
            self.admission.leave()

    def answer(self, request: Request, prepared: Prepared, form: Form, *, stream: bool, progress: bool) -> Answer:
        """Queues a prepared request. Raises ApiError, 429 where the queue is full."""
        requests = [choice.request for choice in prepared.choices]
        self.admission.admit(requests)
        for own in requests:
            self.admission.add(own)
        job = Job(self.serving, prepared.choices)
        try:
            job.start()
        except BaseException:
            self.admission.forget(requests)
            raise
        self.lifecycle.add(job)

        def ended(error: BaseException | None) -> None:
            self.admission.forget(requests)
            self.lifecycle.remove(job)
            self.metrics.job_ended(job, error)
            self.activity.job_ended(job)
            if self.roofs.hardware is not None:
                self.roofs.saw(max(roof_fractions(job.choices, self.roofs.hardware), default=None))
            request.scope["state"]["notes"].update(_notes(job))

        config = self.config
        patience = Patience(
            config.request_timeout, config.keep_alive, config.stall_timeout, _PROGRESS_S if progress else None
        )
        return Answer(job, form, patience, stream=stream, ended=ended)

    def head(
        self,
        prefix: str,
        model: str | None,
        prepared: Prepared,
        request: Request,
        *,
        usage: bool,
        counts_on: bool = False,
    ) -> Head:
        """What the response's chunks share; its id is the request's."""
        number = request.scope["state"]["request_id"].removeprefix("req-")
        return Head(f"{prefix}-{number}", model or self.names[0], prepared, self.roofs, usage, counts_on)

    def _checked(self, request: Request, parsed: Parsed[M]) -> M:
        if parsed.ignored:
            request.scope["state"]["notes"]["ignored"] = list(parsed.ignored)
        name = getattr(parsed.body, "model", None)
        if name is not None and name not in self.names:
            raise unknown_model(name, self.names)
        return parsed.body

    async def _body(self, request: Request) -> bytes:
        limit = self.config.max_body
        too_large = ApiError(413, f"the body is over {limit} bytes", "body_too_large")
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > limit:
            raise too_large
        pieces: list[bytes] = []
        try:
            async with asyncio.timeout(self.config.prepare_timeout):
                async for piece in request.stream():
                    pieces.append(piece)
                    if sum(map(len, pieces)) > limit:
                        raise too_large
        except TimeoutError:
            message = f"the body did not come within {self.config.prepare_timeout:g} s"
            raise ApiError(408, message, "body_timeout") from None
        except ClientDisconnect:
            raise ApiError(400, "the body ended early", "client_closed") from None
        return b"".join(pieces)

    async def _off_loop(self, function: Callable[[], T], size: int) -> T:
        """A small body is parsed at once: a thread would take longer."""
        return function() if size < 1 << 16 else await self.workers.run(function)


def _notes(job: Job) -> dict[str, Any]:
    """What the access log says of an answer."""
    choices = job.choices
    return {
        "prompt_tokens": sum(choice.request.num_prompt for choice in choices),
        "completion_tokens": sum(choice.completion_tokens for choice in choices),
        "finish_reason": choices[0].reason if choices[0].summary is not None else "cancelled",
    }
