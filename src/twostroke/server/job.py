"""Job: the engine requests of one HTTP request, run together. Owns the way from their events to deltas.

Events come as calls; whoever answers awaits `next`. What came meanwhile is one delta a choice, however many tokens it
has: a reader that is slow gets fewer and longer ones, and holds up nobody.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from twostroke.engine.events import Event, Finished, NewToken
from twostroke.engine.ledger import RequestSummary
from twostroke.engine.request import FinishReason, Request
from twostroke.llm.answer_text import AnswerText, PlacedToken
from twostroke.llm.serving import Serving
from twostroke.server.parsed_answer import ParsedAnswer
from twostroke.text.answer.events import AnswerEvent, Content, merged

Reason = Literal["stop", "length", "tool_calls", "cancelled"]


@dataclass(slots=True)
class Delta:
    """What is new of one choice. `tokens` are those whose text is certain, only where log-probabilities are wanted.

    `reason` is set with the last delta, and the choice then has its summary.
    """

    index: int
    events: list[AnswerEvent] = field(default_factory=list)
    tokens: list[PlacedToken] = field(default_factory=list)
    reason: Reason | None = None

    @property
    def text(self) -> str:
        """The content that is new."""
        return "".join(event.text for event in self.events if isinstance(event, Content))


class Choice:
    """One answer: an engine request, and its text so far."""

    def __init__(self, index: int, request: Request, answer: AnswerText | ParsedAnswer) -> None:
        self.index = index
        self.request = request
        self.answer = answer
        self.summary: RequestSummary | None = None
        self._wants_tokens = request.params.sampling.num_logprobs >= 0
        self._events: list[AnswerEvent] = []

    @property
    def has_news(self) -> bool:
        return bool(self._events) or self.summary is not None

    @property
    def completion_tokens(self) -> int:
        return len(self.answer.tokens)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that did not have to be computed, known once it runs."""
        return self.request.num_cached

    @property
    def reasoning_tokens(self) -> int:
        """Those of the answer's tokens that the model thought with."""
        return self.answer.num_reasoning if isinstance(self.answer, ParsedAnswer) else 0

    @property
    def reason(self) -> Reason:
        """Why it ended, once it has."""
        if self.answer.is_stopped or self.request.finish_reason is FinishReason.STOP:
            has_calls = isinstance(self.answer, ParsedAnswer) and self.answer.num_calls
            return "tool_calls" if has_calls else "stop"
        return "length" if self.request.finish_reason is FinishReason.LENGTH else "cancelled"

    def take(self, event: Event) -> bool:
        """Takes an event; whether there is news for the reader."""
        if isinstance(event, NewToken):
            new = self.answer.push(event)
        elif isinstance(event, Finished):
            new = self.answer.flush()
            self.summary = event.summary
        else:
            return False
        if isinstance(new, str):
            new = [Content(new)] if new else []
        self._events += new
        return bool(new) or self.summary is not None

    def delta(self) -> Delta:
        """What is new since the last call."""
        events, self._events = merged(self._events), []
        is_over = self.summary is not None
        tokens = self.answer.take_placed(is_over) if self._wants_tokens else []
        return Delta(self.index, events, tokens, self.reason if is_over else None)


class Job:
    """Choices in the order of their indexes. Belongs to the event loop's thread; `next` has one caller at a time."""

    def __init__(self, serving: Serving, choices: Sequence[Choice]) -> None:
        self.choices = choices
        self._serving = serving
        self._news: dict[int, Choice] = {}
        self._num_open = len(choices)
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Every choice has ended and been told."""
        return not self._num_open and not self._news

    def start(self) -> None:
        """Queues all. Raises what the engine raises for a request that can never run; none is queued then."""
        started: list[Choice] = []
        try:
            for choice in self.choices:
                self._serving.submit(choice.request, partial(self._take, choice))
                started.append(choice)
        except BaseException:
            for choice in started:
                self._serving.cancel(choice.request)
            raise

    async def next(self) -> list[Delta]:
        """Waits for news and returns it, a delta a choice; an empty list after `wake`.

        Raises the error of a step that failed, of reading what came, or the one given to `fail`.
        """
        if not self._news and self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._error is not None:
            raise self._error
        news, self._news = self._news, {}
        return [choice.delta() for choice in news.values()]

    def wake(self) -> None:
        """Makes `next` return."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def cancel(self) -> None:
        """Ends what has not ended, within one step."""
        for choice in self.choices:
            if choice.summary is None:
                self._serving.cancel(choice.request)

    def fail(self, error: BaseException) -> None:
        """Ends everything, and makes `next` raise."""
        if self._error is None:
            self._error = error
        self.cancel()
        self.wake()

    def _take(self, choice: Choice, event: Event) -> None:
        try:
            self._read(choice, event)
        except Exception as error:
            self.fail(error)

    def _read(self, choice: Choice, event: Event) -> None:
        was_stopped = choice.answer.is_stopped
        has_news = choice.take(event)
        if choice.answer.is_stopped and not was_stopped:
            self._serving.cancel(choice.request)
        if choice.summary is not None:
            self._num_open -= 1
            if choice.request.error is not None:
                self.fail(choice.request.error)
        if has_news:
            self._news[choice.index] = choice
            self.wake()
