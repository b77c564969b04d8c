"""Bodies of /v1/responses."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from twostroke.server.protocol.fields import (
    MAX_MESSAGES,
    MAX_NAME,
    RequestModel,
    no_effect,
    refused,
    supported,
)
from twostroke.server.protocol.sampling import Name
from twostroke.server.protocol.tools import MAX_TOOLS, FunctionName

Id = Annotated[str, Field(max_length=MAX_NAME)]


class ResponseText(RequestModel):
    """A part of a message."""

    type: Literal["input_text", "output_text", "text"] = supported(..., "Text, whoever wrote it.")
    text: str = supported(..., "The part's text.")
    annotations: list[Any] | None = no_effect("As an earlier answer had them.")
    logprobs: list[Any] | None = no_effect("As an earlier answer had them.")


class ResponseMessage(RequestModel):
    """A message."""

    type: Literal["message"] = supported("message", "A message; may be left out.")
    role: Literal["system", "developer", "user", "assistant"] = supported(..., "Who speaks.")
    content: str | list[ResponseText] = supported(..., "Text, or parts of text.")
    id: Id | None = no_effect("As an earlier answer had it.")
    status: str | None = no_effect("As an earlier answer had it.")
    phase: str | None = no_effect("As an earlier answer had it.")


class ResponseCall(RequestModel):
    """A function call in an earlier answer."""

    type: Literal["function_call"] = supported(..., "A call.")
    call_id: Id = supported(..., "What its result names.")
    name: Annotated[str, Field(min_length=1, max_length=256)] = supported(..., "The function's name.")
    arguments: str = supported(..., "Its arguments, a text of JSON.")
    id: Id | None = no_effect("As an earlier answer had it.")
    status: str | None = no_effect("As an earlier answer had it.")
    namespace: str | None = no_effect("As an earlier answer had it.")


class ResponseCallOutput(RequestModel):
    """A function's result."""

    type: Literal["function_call_output"] = supported(..., "A result.")
    call_id: Id = supported(..., "The call's.")
    output: str | list[ResponseText] = supported(..., "The result, for the model.")
    id: Id | None = no_effect("A label for the caller's own use.")
    status: str | None = no_effect("A label for the caller's own use.")


class ReasoningText(RequestModel):
    """A part of earlier reasoning."""

    type: Literal["reasoning_text"] = supported(..., "Reasoning.")
    text: str = supported(..., "The part's text.")


class ResponseReasoning(RequestModel):
    """Reasoning in an earlier answer."""

    type: Literal["reasoning"] = supported(..., "Reasoning.")
    content: list[ReasoningText] | None = supported(None, "Where the chat template shows it.")
    summary: list[Any] | None = no_effect("Answers carry none.")
    id: Id | None = no_effect("As an earlier answer had it.")
    status: str | None = no_effect("As an earlier answer had it.")
    encrypted_content: Any = refused("Reasoning that only another server can read.")


InputItem = ResponseMessage | ResponseCall | ResponseCallOutput | ResponseReasoning


class ResponseTool(RequestModel):
    """A function that the model may call."""

    type: Literal["function"] = supported(..., "The only kind there is: function.")
    name: FunctionName = supported(..., "Its name: letters, digits, `_`, `-` and `.`, at most 64.")
    description: str | None = supported(None, "What it does, for the model.")
    parameters: dict[str, Any] | None = supported(None, "The JSON schema of its arguments; absent, it has none.")
    strict: bool | None = supported(None, "Hold the arguments to the schema also where a call is the model's choice.")


class ResponseToolChoice(RequestModel):
    """A function that is to be called."""

    type: Literal["function"] = supported(..., "The only kind there is: function.")
    name: FunctionName = supported(..., "A name among `tools`.")


class TextFormat(RequestModel):
    """Text, any JSON object, or JSON that a schema describes."""

    model_config = ConfigDict(**{**RequestModel.model_config, "validate_by_name": False, "validate_by_alias": True})

    type: Literal["text", "json_object", "json_schema"] = supported(..., "Which of the three.")
    name: str | None = supported(None, "A name for the schema.", max_length=64)
    description: str | None = supported(None, "What it is for.")
    schema_: dict[str, Any] | None = supported(None, "The JSON schema, with type json_schema.", alias="schema")
    strict: bool | None = supported(None, "Answers are held to the schema in either case.")


class TextOptions(RequestModel):
    """What the text must look like."""

    format: TextFormat | None = supported(None, "Its format.")
    verbosity: str | None = refused("How long to answer.")


class ResponseStreamOptions(RequestModel):
    """Options of the stream."""

    include_obfuscation: bool | None = no_effect("Nothing is padded: events are sent as they are.")


class ResponsesRequest(RequestModel):
    """An answer to text or to a list of items, in the form of the Responses API. Nothing is kept on the server."""

    model: Name | None = supported(None, "A name that /v1/models lists; absent, the model that is served.")
    input: str | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_MESSAGES)] = supported(
        ..., "A text, or messages, calls and their results, in order."
    )
    instructions: str | None = supported(None, "A system message before the input.")
    max_output_tokens: int | None = supported(
        None, "New tokens at most; absent, all there is room for.", ge=1, lt=2**31
    )
    temperature: float | None = supported(None, "0 always takes the likeliest token.", ge=0, le=1e9)
    top_p: float | None = supported(None, "Draw from the likeliest tokens of this probability together.", gt=0, le=1)
    seed: int | None = supported(None, "Makes the answer repeatable.", ge=-(2**63), lt=2**64)
    stream: bool | None = supported(None, "Send server-sent events as tokens come.")
    stream_options: ResponseStreamOptions | None = supported(None, "Only with `stream`.")
    tools: Annotated[list[ResponseTool], Field(max_length=MAX_TOOLS)] | None = supported(
        None, "Functions that the model may call."
    )
    tool_choice: Literal["none", "auto", "required"] | ResponseToolChoice | None = supported(
        None, "`auto`, the default; `none`; `required`, at least one call; or a function to be called."
    )
    parallel_tool_calls: bool | None = supported(None, "False: one call at most. True is the default.")
    text: TextOptions | None = supported(None, "What the text must look like.")
    previous_response_id: str | None = refused("Go on from an answer kept on the server.")
    conversation: Any = refused("A chat kept on the server.")
    store: bool | None = refused("Keep the answer on the server.", False)
    background: bool | None = refused("Answer later.", False)
    include: list[Any] | None = refused("More in the answer.")
    reasoning: Any = refused("How long to reason, and a summary of it.")
    truncation: str | None = refused("Drop messages that are too many.", "disabled")
    top_logprobs: int | None = refused("Log-probabilities; /v1/chat/completions has them.", 0)
    max_tool_calls: int | None = refused("A bound on calls of the server's own tools.")
    prompt: Any = refused("A prompt kept on the server.")
    context_management: Any = refused("Shortening of long chats.")
    moderation: Any = refused("Check the text against policies.")
    service_tier: str | None = refused("Another class of service.", "auto", "default")
    metadata: dict[str, Any] | None = supported(None, "Labels, given back with the answer.", max_length=16)
    user: str | None = no_effect("A label for the caller's own use.", max_length=MAX_NAME)
    safety_identifier: str | None = no_effect("A label for the caller's own use.", max_length=MAX_NAME)
    prompt_cache_key: str | None = no_effect("The cache finds shared prefixes by itself.", max_length=MAX_NAME)
    prompt_cache_retention: str | None = no_effect("The cache keeps what it has room for.", max_length=MAX_NAME)
