"""Driver: runs a stage's conversations when they are due. Owns starting and stopping them; which may start is the
gate's, what they are the source's, what they gave the records'.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from twostroke.bench.answer_stream import AnswerStream
from twostroke.bench.client import Client
from twostroke.bench.conversation import Conversation, Source
from twostroke.bench.endpoint import Endpoint, Message
from twostroke.bench.gate import Gate, Live, StageRun
from twostroke.bench.lag import LagMeter
from twostroke.bench.load import Stage
from twostroke.bench.record import Record
from twostroke.bench.wire import FailedRequestError

OnLive = Callable[[Live], None]

_LIVE_SECONDS = 0.5
_ERROR_PAUSE = 0.1  # seconds a closed loop's slot rests after an error: a server that refuses is not stormed


class Driver:
    """Runs stage after stage over one client. Conversations are numbered through, so that no stage repeats another."""

    def __init__(self, client: Client, endpoint: Endpoint, source: Source, seed: int) -> None:
        self._client, self._endpoint, self._source, self._seed = client, endpoint, source, seed
        self._next_index = 0
        self._seen: set[bytes] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._gate: Gate | None = None
        self.is_stopped = False

    def stop(self) -> None:
        """Ends the run now: requests in flight are cancelled and count as such."""
        self.is_stopped = True
        if self._gate is not None:
            self._gate.close()
        for task in self._tasks:
            task.cancel()

    async def run(self, stage: Stage, on_live: OnLive) -> StageRun:
        """Warms up, then holds the stage's load until it ends and all its requests have ended."""
        self._gate = gate = Gate(stage, self._seen)
        async with _watching(gate, on_live), LagMeter() as meter:
            await self._closed_loop(gate, min(stage.warmup, stage.concurrency or 1), 0.0)
            meter.reset()
            if not self.is_stopped:
                start = time.perf_counter()
                gate.open(start)
                if stage.concurrency is not None:
                    await self._closed_loop(gate, stage.concurrency, stage.ramp)
                else:
                    await self._open_loop(gate, start)
        gate.run.lag = meter.lag([lag for record in gate.run.measured if (lag := record.send_lag) is not None])
        return gate.run

    async def _closed_loop(self, gate: Gate, num_slots: int, ramp: float) -> None:
        async def slot(delay: float) -> None:
            await asyncio.sleep(delay)
            while gate.is_open(time.perf_counter()):
                if not await self._converse(gate, self._draw(), None):
                    await asyncio.sleep(_ERROR_PAUSE)

        for number in range(num_slots):
            self._spawn(slot(ramp * number / num_slots))
        await self._all_ended()

    async def _open_loop(self, gate: Gate, start: float) -> None:
        async def arrival(conversation: Conversation, due: float) -> None:
            await self._converse(gate, conversation, due)

        for offset in gate.run.stage.due_times(self._seed):
            conversation, due = self._draw(), start + offset
            while (left := due - time.perf_counter()) > 0 and gate.is_open(time.perf_counter()):
                await asyncio.sleep(min(left, 0.1))
            if not gate.is_open(time.perf_counter()):
                break
            self._spawn(arrival(conversation, due))
            await asyncio.sleep(0)
        await self._all_ended()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _all_ended(self) -> None:
        while self._tasks:
            done, _ = await asyncio.wait(self._tasks)
            for task in done:
                if not task.cancelled() and (fault := task.exception()) is not None:
                    raise fault

    def _draw(self) -> Conversation:
        self._next_index += 1
        return self._source.conversation(self._next_index - 1)

    async def _converse(self, gate: Gate, conversation: Conversation, due: float | None) -> bool:
        """Sends a conversation's turns one after another. Whether all went well; the first error ends it."""
        history: list[Message] = []
        for number, turn in enumerate(conversation.turns):
            history += turn.messages
            body = self._endpoint.body(history, turn.output_tokens)
            record = gate.admit(conversation.index, number, body)
            if record is None:
                return True
            record.asked_prompt, record.asked_output = turn.prompt_tokens, turn.output_tokens
            record.due = due if number == 0 else None
            following = conversation.turns[number + 1 : number + 2]
            needs_answer = any(next_turn.messages[0].get("role") != "assistant" for next_turn in following)
            try:
                answer = await self._request(record, body, needs_answer)
            finally:
                gate.leave(record)
            if answer is None:
                return False
            if needs_answer:
                history.append({"role": "assistant", "content": answer})
        return True

    async def _request(self, record: Record, body: bytes, keep_text: bool) -> str | None:
        """The answer's text (empty where it is not kept); None after an error, which the record has."""
        stream = AnswerStream(record, keep_text)
        try:
            await self._client.post(self._endpoint.path, body, stream)
            stream.close(time.perf_counter())
        except FailedRequestError as error:
            record.error, record.error_detail = error.kind, error.detail
        except asyncio.CancelledError:
            record.cancelled = True
            raise
        finally:
            record.ended = record.ended or time.perf_counter()
        return "".join(stream.texts) if record.error is None else None


@asynccontextmanager
async def _watching(gate: Gate, on_live: OnLive) -> AsyncIterator[None]:
    async def watch() -> None:
        while True:
            await asyncio.sleep(_LIVE_SECONDS)
            on_live(gate.look(time.perf_counter()))

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
