"""Bodies of /v1/messages and /v1/messages/count_tokens, in the form of Anthropic's Messages API."""

from typing import Annotated, Any, Literal

from pydantic import Field

from twostroke.server.protocol.fields import (
    MAX_MESSAGES,
    MAX_NAME,
    MAX_STOPS,
    RequestModel,
    no_effect,
    refused,
    supported,
)
from twostroke.server.protocol.sampling import Name, StopText
from twostroke.server.protocol.tools import MAX_TOOLS, FunctionName

Id = Annotated[str, Field(max_length=MAX_NAME)]
_CACHE = "The cache finds shared prefixes by itself."


class TextBlock(RequestModel):
    """Text."""

    type: Literal["text"] = supported(..., "Text.")
    text: str = supported(..., "The text.")
    cache_control: dict[str, Any] | None = no_effect(_CACHE)
    citations: list[Any] | None = refused("Sources of the text.")


class ToolUseBlock(RequestModel):
    """A call in an earlier answer."""

    type: Literal["tool_use"] = supported(..., "A call.")
    id: Id = supported(..., "What its result names.")
    name: Annotated[str, Field(min_length=1, max_length=256)] = supported(..., "The tool's name.")
    input: dict[str, Any] = supported(..., "Its arguments.")
    caller: dict[str, Any] | None = no_effect("As an earlier answer had it.")
    cache_control: dict[str, Any] | None = no_effect(_CACHE)


class ToolResultBlock(RequestModel):
    """A tool's result."""

    type: Literal["tool_result"] = supported(..., "A result.")
    tool_use_id: Id = supported(..., "The call's id.")
    content: str | list[TextBlock] | None = supported(None, "The result, for the model.")
    is_error: bool | None = supported(None, "The model is told that the tool failed.")
    cache_control: dict[str, Any] | None = no_effect(_CACHE)


class ThinkingBlock(RequestModel):
    """Reasoning in an earlier answer."""

    type: Literal["thinking"] = supported(..., "Reasoning.")
    thinking: str = supported(..., "Where the chat template shows it.")
    signature: str | None = no_effect("Answers carry an empty one.")


Block = Annotated[TextBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock, Field(discriminator="type")]


class Turn(RequestModel):
    """One message."""

    role: Literal["user", "assistant"] = supported(..., "Who speaks.")
    content: str | list[Block] = supported(..., "Text, or blocks.")


class MessageTool(RequestModel):
    """A tool that the model may call."""

    type: Literal["custom"] | None = supported(None, "The only kind there is: custom.")
    name: FunctionName = supported(..., "Its name: letters, digits, `_`, `-` and `.`, at most 64.")
    description: str | None = supported(None, "What it does, for the model.")
    input_schema: dict[str, Any] = supported(..., "The JSON schema of its arguments.")
    strict: bool | None = supported(None, "Hold the arguments to the schema also where a call is the model's choice.")
    cache_control: dict[str, Any] | None = no_effect(_CACHE)
    eager_input_streaming: bool | None = no_effect("Arguments are always sent as they come.")
    input_examples: list[Any] | None = refused("Examples of arguments.")
    defer_loading: bool | None = refused("Tools that are found by search.", False)


class MessageToolChoice(RequestModel):
    """Whether to call."""

    type: Literal["auto", "any", "tool", "none"] = supported(..., "`any`: at least one call; `tool`: the one named.")
    name: FunctionName | None = supported(None, "With type tool: which.")
    disable_parallel_tool_use: bool | None = supported(None, "One call at most.")


class Thinking(RequestModel):
    """Whether the model is to think before it answers, where its template lets one choose."""

    type: Literal["enabled", "disabled", "adaptive"] = supported(..., "`disabled` is an answer without reasoning.")
    budget_tokens: int | None = no_effect(
        "The model ends its reasoning itself; `max_tokens` bounds all.", ge=1, lt=2**31
    )
    display: str | None = refused("Another form of reasoning.", "summarized")


class OutputFormat(RequestModel):
    """JSON that a schema describes."""

    type: Literal["json_schema"] = supported(..., "The only kind there is: json_schema.")
    schema_: dict[str, Any] = supported(..., "The JSON schema.", alias="schema")


class OutputConfig(RequestModel):
    """What the answer must look like."""

    format: OutputFormat | None = supported(None, "Its format.")
    effort: str | None = refused("How long to work.")


class CountRequest(RequestModel):
    """A chat whose prompt's tokens are to be counted."""

    model: Name = supported(..., "A name that /v1/models lists.")
    messages: Annotated[list[Turn], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)] = supported(
        ..., "The chat so far."
    )
    system: str | list[TextBlock] | None = supported(None, "A system message before it.")
    tools: Annotated[list[MessageTool], Field(max_length=MAX_TOOLS)] | None = supported(
        None, "Tools that the model may call."
    )
    tool_choice: MessageToolChoice | None = supported(None, "Whether it has to; `auto` is the default.")
    thinking: Thinking | None = supported(None, "Whether to think first; absent, as the template has it.")
    cache_control: dict[str, Any] | None = no_effect(_CACHE)
    output_config: OutputConfig | None = supported(None, "What the answer must look like.")
    mcp_servers: list[Any] | None = refused("Tools of other servers.")
    context_management: Any = refused("Shortening of long chats.")
    speed: str | None = refused("Another class of service.", "standard")


class MessagesRequest(CountRequest):
    """A chat to be answered."""

    max_tokens: int = supported(..., "New tokens at most.", ge=1, lt=2**31)
    temperature: float | None = supported(None, "0 always takes the likeliest token.", ge=0, le=1e9)
    top_p: float | None = supported(None, "Draw from the likeliest tokens of this probability together.", gt=0, le=1)
    top_k: int | None = supported(None, "Draw from the k likeliest tokens; 0 or -1 is all.", ge=-1, lt=2**31)
    stop_sequences: Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = supported(
        None, "The answer ends before the first of these texts, which is no part of it."
    )
    stream: bool | None = supported(None, "Send server-sent events as tokens come.")
    metadata: dict[str, Any] | None = no_effect("A label for the caller's own use.", max_length=16)
    service_tier: str | None = refused("Another class of service.", "auto", "standard_only")
    container: Any = refused("Code run on the server.")
    inference_geo: str | None = refused("Where the model runs.")
