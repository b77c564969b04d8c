"""AnswerStream: server-sent events into a Record. Owns what counts as a delta, as usage, as an end and as an error."""

import json
from typing import Any

from twostroke.bench.client import error_text
from twostroke.bench.record import Record
from twostroke.bench.wire import FailedRequestError

_MAX_ERROR_BYTES = 64 << 10


class AnswerStream:
    """The sink of one streamed request, chat or completion. `texts` gathers the content where `keep_text` is set."""

    def __init__(self, record: Record, keep_text: bool = False) -> None:
        self._record, self._keep_text = record, keep_text
        self._rest = b""
        self._data: list[bytes] = []
        self._body = bytearray()
        self._is_stream = self._is_done = False
        self.texts: list[str] = []

    def sent(self, now: float) -> None:
        self._record.sent = now

    def begin(self, status: int, content_type: str, now: float) -> None:
        self._record.status = status
        self._is_stream = status == 200 and content_type.startswith("text/event-stream")

    def feed(self, data: bytes, now: float) -> bool:
        """Takes a piece of the body. True once [DONE] was read."""
        if not self._is_stream:
            self._body += data[: _MAX_ERROR_BYTES - len(self._body)]
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].lstrip())
            elif not line and self._data:
                self._take(b"\n".join(self._data), now)
                self._data.clear()
        return self._is_done

    def close(self, now: float) -> None:
        """The answer has ended. Raises FailedRequestError where it was an error, or not whole."""
        record = self._record
        if record.status != 200:
            raise FailedRequestError(f"HTTP {record.status}", error_text(bytes(self._body)))
        if not self._is_stream:
            raise FailedRequestError("not a stream", error_text(bytes(self._body)))
        if not self._is_done and record.finish_reason is None:
            raise FailedRequestError("closed early", f"after {len(record.delta_times)} deltas, without an end")
        if not record.delta_times:
            raise FailedRequestError("no output", f"finish_reason {record.finish_reason}")
        if record.ended is None:
            record.ended = now

    def _take(self, payload: bytes, now: float) -> None:
        if payload == b"[DONE]":
            self._is_done, self._record.ended = True, now
            return
        try:
            chunk = json.loads(payload)
        except (ValueError, RecursionError):
            raise FailedRequestError("malformed chunk", error_text(payload)) from None
        if not isinstance(chunk, dict):
            raise FailedRequestError("malformed chunk", error_text(payload))
        if chunk.get("error"):
            raise FailedRequestError("error in the stream", error_text(payload))
        choices = chunk.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._take_choice(choices[0], now)
        self._take_usage(chunk)

    def _take_choice(self, choice: dict[str, Any], now: float) -> None:
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = {"content": choice.get("text")}
        record = self._record
        if any(_is_output(name, value) for name, value in delta.items()):
            record.delta_times.append(now)
            if delta.get("reasoning_content") or delta.get("reasoning"):
                record.num_reasoning_deltas += 1
        content = delta.get("content")
        if isinstance(content, str) and content:
            if record.first_content_at is None:
                record.first_content_at = now
            if self._keep_text:
                self.texts.append(content)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            record.finish_reason = reason

    def _take_usage(self, chunk: dict[str, Any]) -> None:
        """OpenAI's `usage`, and llama-server's `timings` for what it had cached."""
        known, usage = self._record.usage, _object(chunk.get("usage"))
        known.prompt = _count(usage.get("prompt_tokens"), known.prompt)
        known.completion = _count(usage.get("completion_tokens"), known.completion)
        known.cached = _count(_object(chunk.get("timings")).get("cache_n"), known.cached)
        known.cached = _count(usage.get("prompt_cache_hit_tokens"), known.cached)
        known.cached = _count(_object(usage.get("prompt_tokens_details")).get("cached_tokens"), known.cached)
        details = _object(usage.get("completion_tokens_details"))
        known.reasoning = _count(details.get("reasoning_tokens"), known.reasoning)


def _is_output(name: str, value: object) -> bool:
    """Whether a field of a delta brings tokens: a text or list that is not empty, other than the role."""
    return bool(value) and name != "role" and (isinstance(value, str | list) or name in ("function_call", "audio"))


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object, default: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
