"""Bodies of /v1/messages as chats. Owns how blocks become messages, and what of the body is a request's."""

import json
import secrets
from collections.abc import Sequence
from typing import Any

from twostroke.errors import InvalidRequestError
from twostroke.llm.config import SamplingParams
from twostroke.server.conversation import Conversation
from twostroke.server.dialect import Dialect
from twostroke.server.protocol.messages import (
    CountRequest,
    MessagesRequest,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Turn,
)
from twostroke.server.tool_use import ToolUse
from twostroke.text.grammar.grammar import Grammar
from twostroke.text.tools.tool import Tool


def message_conversation(body: CountRequest, dialect: Dialect) -> Conversation:
    """The chat of a body. Raises InvalidRequestError where its fields contradict each other, or the model has no
    reasoning that could be asked for."""
    options: dict[str, Any] = {}
    if body.thinking is not None:
        if body.thinking.type == "enabled" and not dialect.form.reasons:
            raise InvalidRequestError("thinking: this model does not reason before it answers")
        options["enable_thinking"] = body.thinking.type != "disabled"
    messages = [message for turn in body.messages for message in _messages(turn)]
    if body.system is not None:
        messages.insert(0, {"role": "system", "content": _text(body.system)})
    if body.messages[-1].role == "assistant":  # the API's way to begin the answer for the model
        options |= {"continue_final_message": True, "add_generation_prompt": False}
    return Conversation(messages, _params(body), use=_tool_use(body), grammar=_grammar(body), options=options)


def _params(body: CountRequest) -> SamplingParams:
    seed = secrets.randbits(32)
    if not isinstance(body, MessagesRequest):
        return SamplingParams(seed=seed)
    return SamplingParams(
        temperature=body.temperature,
        top_k=0 if body.top_k == -1 else body.top_k,
        top_p=body.top_p,
        seed=seed,
        max_tokens=body.max_tokens,
        stop=tuple(body.stop_sequences or ()),
    )


def _messages(turn: Turn) -> list[dict[str, Any]]:
    """A turn's messages: results come first, each as one of its own; the rest is one."""
    if isinstance(turn.content, str):
        return [{"role": turn.role, "content": turn.content}]
    results = [_result(block) for block in turn.content if isinstance(block, ToolResultBlock)]
    texts = [block for block in turn.content if isinstance(block, TextBlock)]
    calls = [_call(block) for block in turn.content if isinstance(block, ToolUseBlock)]
    thoughts = [block.thinking for block in turn.content if isinstance(block, ThinkingBlock)]
    message: dict[str, Any] = {"role": turn.role, "content": _text(texts) if texts else None}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    is_empty = not (texts or calls or thoughts)
    return results if results and is_empty else [*results, message]


def _result(block: ToolResultBlock) -> dict[str, Any]:
    text = _text(block.content or "")
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": f"Error: {text}" if block.is_error else text}


def _call(block: ToolUseBlock) -> dict[str, Any]:
    function = {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}
    return {"id": block.id, "type": "function", "function": function}


def _text(content: str | Sequence[TextBlock]) -> str:
    return content if isinstance(content, str) else "\n".join(block.text for block in content)


def _tool_use(body: CountRequest) -> ToolUse:
    tools = [
        Tool(own.name, own.input_schema, f"tools[{index}].input_schema", own.description or "", bool(own.strict))
        for index, own in enumerate(body.tools or ())
    ]
    choice = body.tool_choice
    if choice is None:
        return ToolUse.of(tools, None, parallel=True)
    if (choice.type == "tool") != (choice.name is not None):
        raise InvalidRequestError("tool_choice: a name goes with type 'tool', and with no other")
    word = {"auto": "auto", "none": "none", "any": "required"}.get(choice.type)
    return ToolUse.of(tools, word, named=choice.name, parallel=not choice.disable_parallel_tool_use)


def _grammar(body: CountRequest) -> Grammar | None:
    form = body.output_config.format if body.output_config is not None else None
    return None if form is None else Grammar.json_schema(form.schema_, "output_config.format.schema")
