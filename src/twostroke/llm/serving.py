"""Serving: a loaded model for one asyncio event loop. Owns the engine's thread, and the way of events back to the loop.

The thread drives the engine for everybody. What a step brings waits in one queue and wakes the loop once, however many
requests the step had.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Event as Signal
from threading import Thread

from twostroke.engine.events import Event, Finished
from twostroke.engine.request import Request, State
from twostroke.llm.llm import LLM

Take = Callable[[Event], None]
_log = logging.getLogger("twostroke.serving")


class Serving:
    """Submits and cancels without waiting; events come as calls in the event loop's thread.

    All methods belong to that thread, unless they say otherwise. Use it as a context manager or call `stop`.

    Should a fault end the engine's thread, `death` has it as its result and no more events come: whoever has submitted
    requests ends them.
    """

    def __init__(self, llm: LLM, loop: asyncio.AbstractEventLoop) -> None:
        self.llm = llm
        self._engine_loop = llm.running.loop
        self._mailbox = _Mailbox(loop)
        self._is_over = Signal()
        self._open: set[Request] = set()
        self._loop = loop
        self.death: asyncio.Future[BaseException] = loop.create_future()
        self._thread = Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """The engine's thread runs."""
        return self._thread.is_alive() and self._engine_loop.error is None

    def prepare(self, request: Request) -> None:
        """Checks a request and sets it up, so that `submit` need not. Any thread may call it.

        Raises InvalidRequestError, ContextLengthError, NotEnoughMemoryError.
        """
        self.llm.running.engine.prepare(request)

    def submit(self, request: Request, take: Take) -> None:
        """Queues a request; `take` gets each of its events, Finished last. Raises EngineStoppedError, and what
        `Engine.prepare` does."""

        def take_open(event: Event) -> None:
            if isinstance(event, Finished):
                self._open.discard(request)
            take(event)

        self._open.add(request)
        try:
            self._engine_loop.submit_to(request, _Sink(self._mailbox, take_open))
        except BaseException:
            self._open.discard(request)
            raise

    def cancel(self, request: Request) -> None:
        """Ends the request within one step, in whatever state it is; Finished then comes if the engine lives."""
        if request.state is not State.FINISHED:
            self._engine_loop.cancel(request)

    def stop(self) -> None:
        """Ends the thread after its current step, and what is under way: the engine is left idle."""
        for request in tuple(self._open):
            self.cancel(request)
        self._is_over.set()
        self._engine_loop.wake()
        self._thread.join()

    def __enter__(self) -> "Serving":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._engine_loop.run(self._is_over.is_set)
        except BaseException as error:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.death.set_result, error)


class _Mailbox:
    """Events on their way into the event loop, in order. `put` is called by one thread at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Take, Event]] = deque()
        self._is_called = False

    def put(self, take: Take, event: Event) -> None:
        self._waiting.append((take, event))
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._is_called = False  # first: what is put from here on calls again
        while self._waiting:
            take, event = self._waiting.popleft()
            try:
                take(event)
            except Exception:  # one request's fault, and no reason to keep the others' events from them
                _log.exception("an event of %s could not be taken", event.request.id)


class _Sink:
    """One request's events into the mailbox."""

    __slots__ = ("_mailbox", "_take")

    def __init__(self, mailbox: _Mailbox, take: Take) -> None:
        self._mailbox = mailbox
        self._take = take

    def put(self, event: Event) -> None:
        self._mailbox.put(self._take, event)
