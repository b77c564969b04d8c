"""Admission: how much may wait. Owns the bounds on queued requests and prompt tokens, and what a refusal says."""

import math
from collections.abc import Callable, Iterable, Sequence

from twostroke.engine.request import Request, State
from twostroke.server.errors import ApiError

_MOST_SECONDS = 60


class Admission:
    """Who waits, by the engine's own states. Belongs to the event loop's thread.

    `token_rate` gives the prompt tokens per second of late, 0 where not known: when to come again follows from it.
    """

    def __init__(self, max_queued: int, max_queued_tokens: int, token_rate: Callable[[], float]) -> None:
        self._max_queued = max_queued
        self._max_tokens = max_queued_tokens
        self._token_rate = token_rate
        self._submitted: dict[Request, int] = {}  # prompt tokens
        self._num_preparing = 0

    def enter(self) -> None:
        """A request begins to be prepared. Raises ApiError (429) where the queue is full: before any work is done."""
        if self._num_preparing + self.num_queued >= self._max_queued:
            raise self._refusal(f"{self._max_queued} requests wait already")
        self._num_preparing += 1

    def leave(self) -> None:
        """It is prepared, or was found to be none."""
        self._num_preparing -= 1

    def admit(self, requests: Sequence[Request], at_once: int | None = None) -> None:
        """Makes sure that the engine requests of one prepared request may wait; `at_once` of them, default all, do.

        Raises ApiError: 400 where they could never wait together, 429 where they cannot now.
        """
        count = len(requests) if at_once is None else min(at_once, len(requests))
        tokens = sum(len(request.prompt_ids) for request in requests)
        if count > self._max_queued or tokens > self._max_tokens:
            raise ApiError(
                400,
                f"the request makes {len(requests)} prompts of {tokens} tokens in all; the server takes"
                f" {self._max_queued} prompts of {self._max_tokens} tokens",
                "request_too_large",
            )
        waiting = self._waiting()
        if len(waiting) + count > self._max_queued:
            raise self._refusal(f"{len(waiting)} requests wait already")
        if sum(waiting.values()) + tokens > self._max_tokens:
            raise self._refusal(f"{sum(waiting.values())} prompt tokens wait already")

    def add(self, request: Request) -> None:
        """It is about to be submitted."""
        self._submitted[request] = len(request.prompt_ids)

    def forget(self, requests: Iterable[Request]) -> None:
        """They have ended, or were never submitted."""
        for request in requests:
            self._submitted.pop(request, None)

    @property
    def num_queued(self) -> int:
        """Engine requests that have not begun."""
        return len(self._waiting())

    @property
    def num_queued_tokens(self) -> int:
        """Their prompt tokens."""
        return sum(self._waiting().values())

    def _waiting(self) -> dict[Request, int]:
        return {
            request: tokens
            for request, tokens in self._submitted.items()
            if request.state is State.WAITING and not request.num_preemptions
        }

    def _refusal(self, reason: str) -> ApiError:
        rate = self._token_rate()
        seconds = math.ceil(self.num_queued_tokens / rate) if rate > 0 else 1
        after = str(max(1, min(_MOST_SECONDS, seconds)))
        return ApiError(429, f"the server is busy: {reason}", "server_busy", headers={"Retry-After": after})
