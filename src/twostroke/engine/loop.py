"""EngineLoop: one engine for many threads. Owns who steps it and who gets which event; has no thread of its own.

Whoever waits for an event of its own request drives the engine, one thread at a time, and delivers what belongs to
the others. Nobody waits, nothing runs; unless a thread lends itself to `run`, which drives for all. Submitting and
cancelling never wait for a step: they leave a note which the driver reads before and after each.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from types import TracebackType
from typing import Protocol

from twostroke.engine.engine import Engine
from twostroke.engine.events import Event, Finished
from twostroke.engine.request import Request, State
from twostroke.errors import EngineStoppedError


class Sink(Protocol):
    """Where a request's events go. `put` is called by the thread that drives, under the loop's lock: it only keeps."""

    def put(self, event: Event) -> None: ...


class EngineLoop:
    """Thread-safe access to an engine, which from then on is used through it alone."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed = Condition()  # guards all below; the engine itself belongs to whoever set _is_driven
        self._is_driven = False
        self._num_pausing = 0  # threads that wait for a pause: they go before the next step
        self._notes: deque[Callable[[], None]] = deque()
        self._abandoned: deque[Request] = deque()
        self._sinks: dict[Request, Sink] = {}
        self.error: BaseException | None = None  # what ended `run`, and with it the engine, whose state nobody knows

    def submit(self, request: Request) -> "Stream":
        """Queues a request; its events come from the stream. Raises what `submit_to` raises."""
        stream = Stream(self, request)
        self.submit_to(request, stream)
        return stream

    def submit_to(self, request: Request, sink: Sink) -> None:
        """Queues a request whose events go to `sink`, Finished last. Raises EngineStoppedError, and what
        `Engine.prepare` raises, which does not happen to one that is prepared."""
        if not request.is_prepared:
            self._engine.prepare(request)
        with self._changed:
            self._check()
            self._sinks[request] = sink
            self._note(lambda: self._engine.submit(request))
            self._changed.notify_all()

    def cancel(self, request: Request) -> None:
        """Ends the request within one step; its stream then ends with Finished. Does nothing to a finished one."""
        with self._changed:
            if self.error is None:
                self._note(lambda: self._engine.cancel(request))
                self._changed.notify_all()

    def abandon(self, request: Request) -> None:
        """Ends the request before the next step of anyone. Takes no lock: a finalizer, in any thread, may call it."""
        if request.state is not State.FINISHED:
            self._abandoned.append(request)

    def drive(self, stream: "Stream") -> None:
        """Returns once the stream has an event: by stepping the engine, or as another thread does.

        Raises EngineStoppedError once `run` has ended by an error.
        """
        with self._changed:
            while (self._is_driven or self._num_pausing) and not stream.has_event:
                self._changed.wait()
            if stream.has_event:
                return
            self._check()
            self._is_driven = True
        self._step()

    def run(self, until: Callable[[], bool]) -> None:
        """Drives for everybody in the calling thread, and sleeps where there is nothing to do, until `until` says so:
        it is asked between steps, and after `wake`. Raises what ends the engine itself, and keeps it as `error`."""
        try:
            self._drive_for_all(until)
        except BaseException as error:
            with self._changed:
                self.error = error
                self._changed.notify_all()
            raise

    def _drive_for_all(self, until: Callable[[], bool]) -> None:
        while True:
            with self._changed:
                while not until() and (self._is_driven or self._num_pausing or not self._engine.has_work):
                    self._changed.wait()
                if until():
                    return
                self._is_driven = True
            self._step()

    def wake(self) -> None:
        """Makes `run` ask again whether it is over."""
        with self._changed:
            self._changed.notify_all()

    def _check(self) -> None:
        if self.error is not None:
            raise EngineStoppedError("the engine has stopped by a fault") from self.error

    def _step(self) -> None:
        """One step by the thread that set `_is_driven`. The next one runs when its events are delivered."""
        events: list[Event] = []
        try:
            with self._changed:
                self._read_notes()
            self._engine.begin()
            self._engine.finish(lambda: not (self._notes or self._abandoned or self._num_pausing))
            with self._changed:
                self._read_notes()  # who came meanwhile is in the next step
                goes_on = not self._num_pausing
            if goes_on:
                self._engine.begin()
            events = self._engine.take_events()
        finally:
            self._let_go(events)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Between two steps, until left: no thread drives the engine, and its executor is free for something else."""
        with self._changed:
            self._num_pausing += 1
            while self._is_driven:
                self._changed.wait()
            self._num_pausing -= 1
            self._is_driven = True
        try:
            self._engine.finish()
            yield
        finally:
            self._let_go([])

    def _let_go(self, events: list[Event]) -> None:
        """Delivers what a step brought; from then on another thread may drive, whatever a sink raises."""
        with self._changed:
            try:
                self._deliver(events)
                self._read_notes()
                self._deliver(self._engine.take_events())
            finally:
                self._is_driven = False
                self._changed.notify_all()

    def _note(self, note: Callable[[], None]) -> None:
        self._notes.append(note)
        if not self._is_driven:
            self._read_notes()
            self._deliver(self._engine.take_events())

    def _read_notes(self) -> None:
        while self._notes:
            self._notes.popleft()()
        while self._abandoned:
            self._engine.cancel(self._abandoned.popleft())

    def _deliver(self, events: list[Event]) -> None:
        for event in events:
            sink = self._sinks[event.request]
            if isinstance(event, Finished):
                del self._sinks[event.request]
            sink.put(event)


class Stream:
    """Events of one request: an iterator that ends after Finished. Belongs to one thread.

    Leaving it (as a context manager) or closing it cancels what still runs. Where the request failed, iterating raises
    its error.
    """

    def __init__(self, loop: EngineLoop, request: Request) -> None:
        self.request = request
        self._loop = loop
        self._events: deque[Event] = deque()
        self._is_over = False

    @property
    def has_event(self) -> bool:
        return bool(self._events)

    def put(self, event: Event) -> None:
        self._events.append(event)

    def close(self) -> None:
        """Cancels the request unless it has ended."""
        self._loop.cancel(self.request)

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._is_over:
            raise StopIteration
        while not self._events:
            self._loop.drive(self)
        event = self._events.popleft()
        if isinstance(event, Finished):
            self._is_over = True
            if event.request.error is not None:
                raise event.request.error
        return event

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
