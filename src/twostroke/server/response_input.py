"""Input of /v1/responses as a chat. Owns how items become messages, and what of the body is a request's."""

import secrets
from collections.abc import Sequence
from typing import Any

from twostroke.errors import InvalidRequestError
from twostroke.llm.config import SamplingParams
from twostroke.server.conversation import Conversation
from twostroke.server.protocol.responses import (
    InputItem,
    ResponseCall,
    ResponseCallOutput,
    ResponseMessage,
    ResponsesRequest,
    ResponseText,
)
from twostroke.server.tool_use import ToolUse
from twostroke.text.grammar.grammar import Grammar
from twostroke.text.tools.tool import Tool


def response_conversation(body: ResponsesRequest) -> Conversation:
    """The chat that a body asks to be answered. Raises InvalidRequestError where its fields contradict each other."""
    params = SamplingParams(
        temperature=body.temperature,
        top_p=body.top_p,
        seed=secrets.randbits(32) if body.seed is None else body.seed % 2**64,
        max_tokens=body.max_output_tokens,
    )
    return Conversation(input_messages(body), params, use=_tool_use(body), grammar=_grammar(body))


def input_messages(body: ResponsesRequest) -> list[dict[str, Any]]:
    """Messages as a chat template takes them: reasoning and calls are part of the assistant's message beside them."""
    messages: list[dict[str, Any]] = []
    if body.instructions is not None:
        messages.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        return [*messages, {"role": "user", "content": body.input}]
    for item in body.input:
        _add(messages, item)
    return messages


def _add(messages: list[dict[str, Any]], item: InputItem) -> None:
    if isinstance(item, ResponseMessage):
        role = "system" if item.role == "developer" else item.role
        content = _text(item.content)
        last = messages[-1] if messages else {}
        if role == "assistant" and last.get("role") == role and last.get("content") is None:
            last["content"] = content
        else:
            messages.append({"role": role, "content": content})
    elif isinstance(item, ResponseCallOutput):
        messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)})
    elif isinstance(item, ResponseCall):
        function = {"name": item.name, "arguments": item.arguments}
        call = {"id": item.call_id, "type": "function", "function": function}
        _assistant(messages).setdefault("tool_calls", []).append(call)
    elif item.content:
        messages.append({"role": "assistant", "content": None})
        messages[-1]["reasoning_content"] = "".join(part.text for part in item.content)


def _assistant(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message at the end, begun where there is none."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _text(content: str | Sequence[ResponseText]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _tool_use(body: ResponsesRequest) -> ToolUse:
    tools = [
        Tool(own.name, own.parameters or {}, f"tools[{index}].parameters", own.description or "", bool(own.strict))
        for index, own in enumerate(body.tools or ())
    ]
    choice = body.tool_choice
    named = None if choice is None or isinstance(choice, str) else choice.name
    word = choice if isinstance(choice, str) else None
    return ToolUse.of(tools, word, named=named, parallel=body.parallel_tool_calls)


def _grammar(body: ResponsesRequest) -> Grammar | None:
    form = body.text.format if body.text is not None else None
    if form is None:
        return None
    if form.type == "json_schema":
        if form.schema_ is None:
            raise InvalidRequestError("text.format: type 'json_schema' needs the field schema")
        return Grammar.json_schema(form.schema_, "text.format.schema")
    return Grammar.json_object("text.format") if form.type == "json_object" else None
