"""Answers written by hand: events as a server sends them, at times that a test chooses."""

import json
from collections.abc import Sequence
from typing import Any

from twostroke.bench.answer_stream import AnswerStream
from twostroke.bench.record import Record

Event = tuple[float, Any]


def event(value: object) -> bytes:
    return b"data: %s\n\n" % (value if isinstance(value, bytes) else json.dumps(value).encode())


def delta(text: str = "word ", name: str = "content", **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {name: text, **more}, "finish_reason": None}], "usage": None}


def finish(reason: str = "length") -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": None}


def usage(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}}


DONE = b"[DONE]"


def record_of(events: Sequence[Event], sent: float = 100.0, **fields: Any) -> Record:
    """The record of an answer whose events came at these times, in seconds after the request was sent."""
    record = Record(stage=0, conversation=0, turn=0, **fields)
    stream = AnswerStream(record)
    stream.sent(sent)
    stream.begin(200, "text/event-stream; charset=utf-8", sent)
    for at, value in events:
        stream.feed(event(value), sent + at)
    stream.close(sent + events[-1][0])
    return record


def steady(num: int, first: float = 0.2, gap: float = 0.01, **more: Any) -> Record:
    """An answer of `num` one-token deltas."""
    events: list[Event] = [(first + index * gap, delta()) for index in range(num)]
    end = first + (num - 1) * gap
    return record_of([*events, (end, finish()), (end, usage(50, num)), (end + 0.005, DONE)], **more)
