"""Answer: a job's deltas on their way to one client. Owns streaming, silence, deadlines, clients that go or stall."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from twostroke.server.errors import api_error, too_late
from twostroke.server.form import Form
from twostroke.server.job import Job
from twostroke.server.wire import KEEP_ALIVE, headers, json_bytes

_STREAM_HEADERS = headers(
    {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}
)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds: for the whole answer, in silence before a comment, for a reader that takes nothing.
    `progress` is the time between progress events, None for none."""

    request: float
    keep_alive: float
    stall: float
    progress: float | None = None


class ClientGone(Exception):  # noqa: N818 - it is no error
    """The client closed the connection, or takes nothing."""


class Answer:
    """An ASGI response. `ended` is called once, whatever happens, with the error that ended it, if one did."""

    def __init__(
        self, job: Job, form: Form, patience: Patience, *, stream: bool, ended: Callable[[BaseException | None], None]
    ) -> None:
        self._job = job
        self._form = form
        self._patience = patience
        self._is_stream = stream
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        gone = loop.create_task(self._watch(receive))
        late = loop.call_later(self._patience.request, self._job.fail, too_late(self._patience.request))
        error: BaseException | None = None
        try:
            await (self._stream(send) if self._is_stream else self._whole(send))
        except ClientGone as leaving:
            error = leaving
        except BaseException as found:
            error = found
            raise
        finally:
            late.cancel()
            gone.cancel()
            self._job.cancel()
            self._ended(error)

    async def _whole(self, send: Send) -> None:
        while not self._job.is_over:
            self._form.keep(await self._job.next())
        data = json_bytes(self._form.body())
        given = headers({"content-type": "application/json", "content-length": str(len(data))})
        await send({"type": "http.response.start", "status": 200, "headers": given})
        await send({"type": "http.response.body", "body": data})

    async def _stream(self, send: Send) -> None:
        pipe = _Pipe(send, self._patience, self._job)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
            await pipe.write(self._form.open())
            while not self._job.is_over:
                deltas = await self._job.next()
                await pipe.write(self._form.deltas(deltas))
                if pipe.is_progress_due:
                    await pipe.write(self._form.progress(*self._processed()))
                elif pipe.is_quiet:
                    await pipe.write(KEEP_ALIVE)
            await pipe.write(self._form.close(), is_last=True)
        except (ClientGone, asyncio.CancelledError, OSError):
            if pipe.is_stalled:
                raise ClientGone("the reader took nothing") from None
            raise
        except Exception as error:
            await pipe.write(self._form.failed(api_error(error)), is_last=True)
            raise StreamFailed(error) from error
        finally:
            pipe.close()

    def _processed(self) -> tuple[int, int]:
        """Prompt tokens that are computed, and all of them; a prompt's choices share one count."""
        requests = [choice.request for choice in self._job.choices]
        return sum(min(r.num_computed, r.num_prompt) for r in requests), sum(r.num_prompt for r in requests)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._job.fail(ClientGone("the client closed the connection"))


class StreamFailed(Exception):  # noqa: N818 - the client has been told
    """A stream ended with an error event; the cause is why."""


class _Pipe:
    """Writes, and a clock beside it that sees silence and a reader that does not read."""

    def __init__(self, send: Send, patience: Patience, job: Job) -> None:
        self._send = send
        self._patience = patience
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._written = self._reported = self._loop.time()
        self._writing_since: float | None = None
        self._tick = min(patience.keep_alive, patience.stall, patience.progress or patience.stall, 1.0)
        self._timer = self._loop.call_later(self._tick, self._look)
        self.is_stalled = False

    @property
    def is_quiet(self) -> bool:
        return self._loop.time() - self._written >= self._patience.keep_alive

    @property
    def is_progress_due(self) -> bool:
        """A progress event is wanted, and no token has come since."""
        every = self._patience.progress
        if every is None or any(choice.answer.tokens for choice in self._job.choices):
            return False
        now = self._loop.time()
        if now - self._reported < every:
            return False
        self._reported = now
        return True

    async def write(self, data: bytes, *, is_last: bool = False) -> None:
        """Waits until the connection takes it. Nothing is written for no data, unless it is the last."""
        if not data and not is_last:
            return
        self._writing_since = self._loop.time()
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})
        self._writing_since = None
        self._written = self._loop.time()

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if self._writing_since is None:
            self._job.wake()
        elif now - self._writing_since > self._patience.stall and self._task is not None:
            self.is_stalled = True
            self._task.cancel()
            return
        self._timer = self._loop.call_later(self._tick, self._look)
