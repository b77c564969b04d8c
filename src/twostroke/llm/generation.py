"""Generation: one answer as it comes. Owns the way from a request's events to text; the engine's loop runs it."""

import weakref
from collections.abc import Iterator
from types import TracebackType

from twostroke.engine.events import Event, Finished, NewToken
from twostroke.engine.ledger import RequestSummary
from twostroke.engine.loop import EngineLoop
from twostroke.engine.request import FinishReason, Request, TokenScore
from twostroke.llm import results
from twostroke.llm.answer_text import AnswerText
from twostroke.llm.paging import PagingWatch
from twostroke.llm.stop import StopStrings
from twostroke.text.tokenizer import Tokenizer


class Generation:
    """An iterator over the pieces of an answer's text; `completion` has everything once it is exhausted.

    Belongs to one thread, except `cancel`. To leave early, close it or use it as a context manager: the request then
    ends, as it does once nothing refers to the object any more. Where a step failed, iterating raises its error.
    """

    def __init__(self, loop: EngineLoop, request: Request, tokenizer: Tokenizer, stops: StopStrings) -> None:
        self._loop = loop
        self._request = request
        self._answer = AnswerText(tokenizer, stops)
        self._text: list[str] = []
        self._paging = PagingWatch()
        self._is_cancelled = False
        self._summary: RequestSummary | None = None
        self._stream = loop.submit(request)
        weakref.finalize(self, loop.abandon, request).atexit = False

    @property
    def is_over(self) -> bool:
        return self._summary is not None

    @property
    def has_event(self) -> bool:
        """`advance` would not have to wait."""
        return self._stream.has_event

    @property
    def completion(self) -> results.Completion:
        """The whole answer. Raises RuntimeError before its end."""
        if self._summary is None:
            raise RuntimeError("the answer is not complete yet")
        has_logprobs = self._request.params.sampling.num_logprobs >= 0
        scores = tuple(TokenScore(t.token_id, t.logprob or 0.0, t.alternatives) for t in self._answer.tokens)
        return results.Completion(
            text="".join(self._text),
            token_ids=tuple(token.token_id for token in self._answer.tokens),
            logprobs=scores if has_logprobs else None,
            finish_reason=self._finish_reason(),
            prompt_tokens=self._request.num_prompt,
            seed=self._request.params.sampling.seed,
            summary=self._summary,
            paging=self._paging.found,
        )

    def cancel(self) -> None:
        """Asks for the end: it comes within one step, with what there is until then. Any thread, or a signal handler,
        may call it."""
        self._is_cancelled = True

    def close(self) -> None:
        """Ends the request, if it has not ended."""
        self._stream.close()

    def advance(self) -> str:
        """Waits for the next event and returns the text it completes, often empty. StopIteration after the last."""
        while not self.has_event and not self.is_over:
            if self._is_cancelled:
                self._stream.close()
            self._loop.drive(self._stream)
        return self._take(next(self._stream))

    def __iter__(self) -> Iterator[str]:
        while not self.is_over:
            if piece := self.advance():
                yield piece

    def __enter__(self) -> "Generation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, event: Event) -> str:
        piece, was_stopped = "", self._answer.is_stopped
        if isinstance(event, Finished):
            self._summary = event.summary
            piece = self._answer.flush()
        elif isinstance(event, NewToken) and not was_stopped:  # some come until the engine knows
            self._paging.token()
            piece = self._answer.push(event)
            if self._answer.is_stopped:
                self._stream.close()
        self._text.append(piece)
        return piece

    def _finish_reason(self) -> results.FinishReason:
        if self._answer.is_stopped or self._request.finish_reason is FinishReason.STOP:
            return "stop"
        return "length" if self._request.finish_reason is FinishReason.LENGTH else "cancelled"
