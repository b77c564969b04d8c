"""AssistantMessage: an answer put together from its events. Owns its parts; how an API shows them is a form's."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from twostroke.text.answer.events import AnswerEvent, CallArguments, CallEnded, CallStarted, Content, Reasoning


@dataclass(slots=True)
class Call:
    """One tool call. Until `is_complete` its arguments are as far as they came."""

    id: str
    name: str
    arguments: str = ""
    is_complete: bool = False


@dataclass(slots=True)
class AssistantMessage:
    """Reasoning, content and calls of one choice so far."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, events: Iterable[AnswerEvent]) -> None:
        for event in events:
            if isinstance(event, Content):
                self.content += event.text
            elif isinstance(event, Reasoning):
                self.reasoning += event.text
            elif isinstance(event, CallStarted):
                self.calls.append(Call(event.id, event.name))
            elif isinstance(event, CallArguments):
                self.calls[event.index].arguments += event.text
            elif isinstance(event, CallEnded):
                self.calls[event.index].is_complete = True

    def chat_fields(self) -> dict[str, Any]:
        """As chat completions have it."""
        fields: dict[str, Any] = {"role": "assistant", "content": self.content, "refusal": None}
        if self.reasoning:
            fields["reasoning_content"] = self.reasoning
        if self.calls:
            fields["content"] = self.content or None
            fields["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.calls
            ]
        return fields
