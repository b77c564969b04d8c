"""Client and Answer: completions streamed from a server, with the time of each chunk. Owns how a stream is read.

It reads HTTP/1.1 by hand: beside a server on the same cores, what a client library takes for each of 64 streams' tokens
is missing to the server, and would be measured as its own.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

_PATIENCE_S = 600


@dataclass(slots=True)
class Answer:
    """One request's. Times are of perf_counter, in seconds; `counts` are the tokens there were with each chunk."""

    started: float
    status: int = 0
    text: str = ""
    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    ended: float = 0.0

    @property
    def ttft(self) -> float:
        return self.times[0] - self.started

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    def gaps(self, since: float, until: float) -> list[float]:
        """Between chunks that follow each other, both within the time."""
        inside = [time for time in self.times if since <= time <= until]
        return [later - earlier for earlier, later in pairwise(inside)]

    def tokens_between(self, since: float, until: float) -> int:
        """Tokens that came after `since` and not after `until`."""
        counts = [0, *(count for time, count in zip(self.times, self.counts, strict=True) if time <= until)]
        before = [0, *(count for time, count in zip(self.times, self.counts, strict=True) if time <= since)]
        return counts[-1] - before[-1]


class Client:
    """Asks /v1/completions of the server at `url`, each time over a connection of its own. A refusal is an answer
    too."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80

    async def ask(
        self,
        prompt: list[int],
        max_tokens: int,
        *,
        seed: int | None = None,
        salt: str = "",
        until: asyncio.Event | None = None,
        into: Answer | None = None,
    ) -> Answer:
        """Greedy without a seed. Always as many tokens as asked for, unless the event comes first, which ends the
        stream. `into` is the answer that is returned, for who wants to look at it earlier."""
        body: dict[str, Any] = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "stream": True}
        body |= {"temperature": 0} if seed is None else {"temperature": 1, "seed": seed}
        body |= {"stream_options": {"continuous_usage_stats": True}} | ({"cache_salt": salt} if salt else {})
        answer, is_left = into or Answer(perf_counter()), False
        async with asyncio.timeout(_PATIENCE_S), aclosing(self._events(answer, json.dumps(body).encode())) as events:
            async for event in events:
                _take(answer, event)
                if is_left := until is not None and until.is_set():
                    break
        answer.ended = perf_counter()
        if answer.status == 200 and not is_left and (not answer.counts or answer.counts[-1] != max_tokens):
            answer.status = 0  # cut off
        return answer

    async def _events(self, answer: Answer, data: bytes) -> AsyncGenerator[bytes]:
        """JSON of the answer's events; none of one that is refused."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
            answer.status = int((await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1])
            if answer.status != 200:
                await reader.read()
                return
            while True:
                piece = await reader.readuntil(b"\n\n")  # before the event, the length of the chunk that has it
                if (begin := piece.find(b"data: {")) >= 0:
                    yield piece[begin + len(b"data: ") :]
        except asyncio.IncompleteReadError:  # the end
            return
        finally:
            writer.close()


def _take(answer: Answer, event: bytes) -> None:
    chunk = json.loads(event)
    if chunk.get("choices"):
        answer.text += chunk["choices"][0]["text"]
        answer.times.append(perf_counter())
        answer.counts.append(chunk["usage"]["completion_tokens"])
