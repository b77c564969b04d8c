"""ResponsesForm: answers of /v1/responses. Owns the response object and the order of a stream's events."""

from collections.abc import Iterable, Sequence
from typing import Any

from twostroke.server.errors import ApiError
from twostroke.server.head import Head
from twostroke.server.job import Delta, Reason
from twostroke.server.protocol.responses import ResponsesRequest
from twostroke.server.response_output import Event, ResponseOutput
from twostroke.server.wire import named_event


class ResponsesForm:
    """One answer. Streamed or whole, its items are the same."""

    def __init__(self, head: Head, body: ResponsesRequest) -> None:
        self._head = head
        self._body = body
        self._output = ResponseOutput(head.id.partition("-")[2])
        self._num_events = 0
        self._reason: Reason | None = None

    def open(self) -> bytes:
        shown = self._response("in_progress", [])
        return self._events({"type": f"response.{name}", "response": shown} for name in ("created", "in_progress"))

    def deltas(self, deltas: Sequence[Delta]) -> bytes:
        return self._events(self._taken(deltas))

    def progress(self, processed: int, total: int) -> bytes:
        return b""

    def close(self) -> bytes:
        status = self._status()
        return self._events([{"type": f"response.{status}", "response": self._response(status, self._output.items)}])

    def failed(self, error: ApiError) -> bytes:
        told = error.body()["error"]
        failure = {"code": told["code"] or told["type"], "message": told["message"]}
        response = self._response("failed", self._output.items) | {"error": failure}
        return self._events([{"type": "response.failed", "response": response}])

    def keep(self, deltas: Sequence[Delta]) -> None:
        self._taken(deltas)

    def body(self) -> dict[str, Any]:
        return self._response(self._status(), self._output.items)

    def _taken(self, deltas: Sequence[Delta]) -> list[Event]:
        events: list[Event] = []
        for delta in deltas:
            for event in delta.events:
                events += self._output.add(event)
            if delta.reason is not None:
                self._reason = delta.reason
                events += self._output.close(self._status())
        return events

    def _status(self) -> str:
        return "completed" if self._reason in ("stop", "tool_calls") else "incomplete"

    def _events(self, events: Iterable[Event]) -> bytes:
        written = b""
        for event in events:
            written += named_event(event["type"], {**event, "sequence_number": self._num_events})
            self._num_events += 1
        return written

    def _response(self, status: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        """The response object; usage and timings once it has ended."""
        body, head = self._body, self._head
        is_over = status in ("completed", "incomplete")
        given = body.model_dump(include={"tools", "tool_choice", "text"}, exclude_none=True, by_alias=True)
        response: dict[str, Any] = {
            "id": head.id,
            "object": "response",
            "created_at": head.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": head.model,
            "output": items,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": None,
            "store": False,
            "temperature": body.temperature,
            "text": given.get("text", {"format": {"type": "text"}}),
            "tool_choice": given.get("tool_choice", "auto"),
            "tools": given.get("tools", []),
            "top_p": body.top_p,
            "truncation": "disabled",
            "usage": self._usage() if is_over else None,
        }
        return {**response, "twostroke": head.timings()} if is_over else response

    def _usage(self) -> dict[str, Any]:
        usage = self._head.usage()
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": usage["prompt_tokens_details"],
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": usage["completion_tokens_details"],
            "total_tokens": usage["total_tokens"],
        }
