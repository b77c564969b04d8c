"""MessagesForm: answers of /v1/messages. Owns the message's blocks, and the order of a stream's events."""

import json
from collections.abc import Sequence
from typing import Any

from twostroke.server.errors import ApiError
from twostroke.server.head import Head
from twostroke.server.job import Delta
from twostroke.server.wire import named_event
from twostroke.text.answer.events import AnswerEvent, CallArguments, CallStarted, Content, Reasoning

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "cancelled": "end_turn"}


class MessagesForm:
    """One answer. Streamed or whole, its blocks are the same."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._blocks: list[dict[str, Any]] = []
        self._arguments = ""  # of the call that is open
        self._is_open = False
        self._reason = "end_turn"

    def open(self) -> bytes:
        choice = self._head.prepared.choices[0]
        usage = {"input_tokens": choice.request.num_prompt, "output_tokens": 0}
        return named_event("message_start", {"type": "message_start", "message": self._message(None, usage)})

    def deltas(self, deltas: Sequence[Delta]) -> bytes:
        return b"".join(self._take(delta) for delta in deltas)

    def progress(self, processed: int, total: int) -> bytes:
        return b""

    def close(self) -> bytes:
        ending = {"stop_reason": self._reason, "stop_sequence": self._stop_sequence()}
        last = {"type": "message_delta", "delta": ending, "usage": self._usage(), "twostroke": self._head.timings()}
        return named_event("message_delta", last) + named_event("message_stop", {"type": "message_stop"})

    def failed(self, error: ApiError) -> bytes:
        return named_event("error", error.messages_body())

    def keep(self, deltas: Sequence[Delta]) -> None:
        self.deltas(deltas)

    def body(self) -> dict[str, Any]:
        return {**self._message(self._reason, self._usage()), "twostroke": self._head.timings()}

    def _take(self, delta: Delta) -> bytes:
        written = b"".join(self._add(event) for event in delta.events)
        if delta.reason is not None:
            written += self._close_block()
            self._reason = "stop_sequence" if self._stop_sequence() is not None else _REASONS[delta.reason]
        return written

    def _add(self, event: AnswerEvent) -> bytes:
        if isinstance(event, Content):
            return self._add_text("text", event.text)
        if isinstance(event, Reasoning):
            return self._add_text("thinking", event.text)
        if isinstance(event, CallStarted):
            return self._open_block({"type": "tool_use", "id": event.id, "name": event.name, "input": {}})
        if isinstance(event, CallArguments):
            self._arguments += event.text
            return self._delta({"type": "input_json_delta", "partial_json": event.text})
        return self._close_block()

    def _add_text(self, kind: str, text: str) -> bytes:
        opening = b""
        if not self._is_open or self._blocks[-1]["type"] != kind:
            more = {"signature": ""} if kind == "thinking" else {}
            opening = self._open_block({"type": kind, kind: "", **more})
        self._blocks[-1][kind] += text
        return opening + self._delta({"type": f"{kind}_delta", kind: text})

    def _open_block(self, block: dict[str, Any]) -> bytes:
        closing = self._close_block()
        self._blocks.append(block)
        self._is_open, self._arguments = True, ""
        return closing + self._event("content_block_start", content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._event("content_block_delta", delta=delta)

    def _close_block(self) -> bytes:
        if not self._is_open:
            return b""
        self._is_open = False
        block = self._blocks[-1]
        if block["type"] == "tool_use":
            block["input"] = _input(self._arguments)
        return self._event("content_block_stop")

    def _event(self, name: str, **fields: Any) -> bytes:
        return named_event(name, {"type": name, "index": len(self._blocks) - 1, **fields})

    def _message(self, reason: str | None, usage: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self._head.id,
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "content": self._blocks,
            "stop_reason": reason,
            "stop_sequence": self._stop_sequence() if reason is not None else None,
            "usage": usage,
        }

    def _stop_sequence(self) -> str | None:
        return self._head.prepared.choices[0].answer.stop_found

    def _usage(self) -> dict[str, Any]:
        usage = self._head.usage()
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": usage["prompt_tokens"] - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": usage["completion_tokens"],
        }


def _input(arguments: str) -> dict[str, Any]:
    """Arguments as the object that the API has. What was cut off is shown as it came, under a name that says so."""
    try:
        value = json.loads(arguments)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"INVALID_JSON": arguments}
