"""ResponseOutput: an answer as the items of the Responses API. Owns the items, and the events that tell of each change;
what is around them is `responses_form.py`'s.
"""

from typing import Any

from twostroke.text.answer.events import AnswerEvent, CallArguments, CallEnded, CallStarted, Content, Reasoning

Event = dict[str, Any]
# Of the items that hold text: the part's type, and the events' names.
_PARTS = {"message": ("output_text", "output_text"), "reasoning": ("reasoning_text", "reasoning_text")}


class ResponseOutput:
    """Takes an answer's events in order. Streamed or not, `items` are the same. `number` makes the items' ids."""

    def __init__(self, number: str) -> None:
        self._number = number
        self._is_open = False
        self.items: list[dict[str, Any]] = []

    def add(self, event: AnswerEvent) -> list[Event]:
        """The stream's events for one of the answer's."""
        if isinstance(event, Content):
            return self._add_text("message", event.text)
        if isinstance(event, Reasoning):
            return self._add_text("reasoning", event.text)
        if isinstance(event, CallStarted):
            item = {"type": "function_call", "call_id": event.id, "name": event.name, "arguments": ""}
            return [*self.close(), *self._open(item)]
        if isinstance(event, CallArguments):
            self.items[-1]["arguments"] += event.text
            return [self._event("function_call_arguments.delta", delta=event.text)]
        return self.close() if isinstance(event, CallEnded) else []

    def close(self, status: str = "completed") -> list[Event]:
        """The item that is open ends: "completed", or "incomplete" where the answer was cut."""
        if not self._is_open:
            return []
        self._is_open = False
        item = self.items[-1]
        item["status"] = status
        events: list[Event] = []
        if item["type"] == "function_call":
            done = self._event("function_call_arguments.done", arguments=item["arguments"])
            events.append({**done, "name": item["name"]})
        else:
            part = item["content"][0]
            more: dict[str, Any] = {"logprobs": []} if item["type"] == "message" else {}
            name = _PARTS[item["type"]][1]
            events.append(self._event(f"{name}.done", content_index=0, text=part["text"], **more))
            events.append(self._event("content_part.done", content_index=0, part=dict(part)))
        return [*events, self._item_event("done")]

    def _add_text(self, kind: str, text: str) -> list[Event]:
        events: list[Event] = []
        part_type, name = _PARTS[kind]
        if not self._is_open or self.items[-1]["type"] != kind:
            part: dict[str, Any] = {"type": part_type, "text": ""}
            item: dict[str, Any] = {"type": kind, "content": []}
            if kind == "message":
                item["role"] = "assistant"
                part |= {"annotations": [], "logprobs": []}
            else:
                item["summary"] = []
            events = [*self.close(), *self._open(item)]
            item["content"].append(part)
            events.append(self._event("content_part.added", content_index=0, part=dict(part)))
        self.items[-1]["content"][0]["text"] += text
        more: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        return [*events, self._event(f"{name}.delta", content_index=0, delta=text, **more)]

    def _open(self, item: dict[str, Any]) -> list[Event]:
        prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[item["type"]]
        item |= {"id": f"{prefix}-{self._number}-{len(self.items)}", "status": "in_progress"}
        self.items.append(item)
        self._is_open = True
        return [self._item_event("added")]

    def _item_event(self, what: str) -> Event:
        item = self.items[-1]
        shown = {**item, "content": [dict(part) for part in item["content"]]} if "content" in item else dict(item)
        return {"type": f"response.output_item.{what}", "output_index": len(self.items) - 1, "item": shown}

    def _event(self, name: str, **fields: Any) -> Event:
        where = {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}
        return {"type": f"response.{name}", **where, **fields}
