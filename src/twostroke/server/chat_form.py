"""ChatForm: answers of /v1/chat/completions. Owns chunks and the whole response."""

from collections.abc import Sequence
from typing import Any

from twostroke.llm.answer_text import PlacedToken
from twostroke.server.errors import ApiError
from twostroke.server.head import Head
from twostroke.server.job import Delta
from twostroke.server.logprobs import TokenNames, chat_logprobs
from twostroke.server.message import AssistantMessage
from twostroke.server.wire import DONE, event, text_of
from twostroke.text.answer.events import AnswerEvent, CallArguments, CallStarted, Content, Reasoning


class ChatForm:
    """One chat answered. What is the same in all chunks is written once."""

    def __init__(self, head: Head, names: TokenNames, *, has_logprobs: bool) -> None:
        self._head = head
        self._names = names
        self._has_logprobs = has_logprobs
        self._prefix = head.chunk_prefix("chat.completion.chunk")
        self._suffix = head.chunk_suffix()
        self._begun: set[int] = set()
        self._messages = {index: AssistantMessage() for index in range(head.num_choices)}
        self._tokens: dict[int, list[PlacedToken]] = {index: [] for index in range(head.num_choices)}
        self._reasons: dict[int, str] = {}

    def open(self) -> bytes:
        return b""

    def deltas(self, deltas: Sequence[Delta]) -> bytes:
        return "".join(self._chunks(delta) for delta in deltas).encode("utf-8")

    def progress(self, processed: int, total: int) -> bytes:
        return self._head.progress_event("chat.completion.chunk", processed, total)

    def close(self) -> bytes:
        return self._head.last_event("chat.completion.chunk") + DONE

    def failed(self, error: ApiError) -> bytes:
        return event(error.data().decode("ascii")) + DONE

    def keep(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            self._messages[delta.index].add(delta.events)
            self._tokens[delta.index] += delta.tokens
            if delta.reason is not None:
                self._reasons[delta.index] = delta.reason

    def body(self) -> dict[str, Any]:
        choices = [self._choice(index) for index in range(self._head.num_choices)]
        return self._head.body("chat.completion", choices)

    def _choice(self, index: int) -> dict[str, Any]:
        message = self._messages[index].chat_fields()
        logprobs = chat_logprobs(self._names, self._tokens[index]) if self._has_logprobs else None
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": self._reasons[index]}

    def _chunks(self, delta: Delta) -> str:
        """The delta's chunk, with the role's before the first and the reason's after the last."""
        chunks = ""
        if delta.index not in self._begun:
            self._begun.add(delta.index)
            chunks = self._chunk(delta.index, '{"role":"assistant","content":""}', "null", "null")
        parts = [part for event in delta.events if (part := _part(event))]
        if delta.tokens and not parts:
            parts = ['{"content":""}']
        for number, part in enumerate(parts):
            has_logprobs = self._has_logprobs and not number  # with the first, all that came together
            logprobs = text_of(chat_logprobs(self._names, delta.tokens)) if has_logprobs else "null"
            chunks += self._chunk(delta.index, part, logprobs, "null")
        if delta.reason is not None:
            chunks += self._chunk(delta.index, "{}", "null", f'"{delta.reason}"')
        return chunks

    def _chunk(self, index: int, delta: str, logprobs: str, reason: str) -> str:
        return (
            f'{self._prefix}{{"index":{index},"delta":{delta},"logprobs":{logprobs},"finish_reason":{reason}}}]'
            f"{self._head.chunk_suffix() if self._head.counts_on else self._suffix}"
        )


def _part(event: AnswerEvent) -> str:
    """What a chunk's delta says of an event, in JSON; nothing for a call's end."""
    if isinstance(event, Content):
        return f'{{"content":{text_of(event.text)}}}'
    if isinstance(event, Reasoning):
        return f'{{"reasoning_content":{text_of(event.text)}}}'
    call: dict[str, Any]
    if isinstance(event, CallStarted):
        function = {"name": event.name, "arguments": ""}
        call = {"index": event.index, "id": event.id, "type": "function", "function": function}
    elif isinstance(event, CallArguments):
        call = {"index": event.index, "function": {"arguments": event.text}}
    else:
        return ""
    return text_of({"tool_calls": [call]})
