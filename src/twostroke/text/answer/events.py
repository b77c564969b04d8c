"""What an answer consists of, in order. Owns the events' fields only; they are the same streamed or not."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool call begins: once a call. `index` counts the answer's calls from 0; `id` is unique."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of a call's arguments: JSON once complete, joined as it was written and never repaired."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call's arguments are complete. A call that was cut off has no such event."""

    index: int


AnswerEvent = Reasoning | Content | CallStarted | CallArguments | CallEnded


def merged(events: list[AnswerEvent]) -> list[AnswerEvent]:
    """The same with neighbouring pieces of one kind joined."""
    result: list[AnswerEvent] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, Reasoning) and isinstance(last, Reasoning):
            result[-1] = Reasoning(last.text + event.text)
        elif isinstance(event, Content) and isinstance(last, Content):
            result[-1] = Content(last.text + event.text)
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments) and event.index == last.index:
            result[-1] = CallArguments(event.index, last.text + event.text)
        else:
            result.append(event)
    return result
