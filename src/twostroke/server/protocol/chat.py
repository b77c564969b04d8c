"""Bodies of /v1/chat/completions."""

from typing import Annotated, Any, Literal

from pydantic import Field

from twostroke.server.protocol.fields import (
    MAX_LOGPROBS,
    MAX_MESSAGES,
    MAX_NAME,
    RequestModel,
    no_effect,
    refused,
    supported,
)
from twostroke.server.protocol.sampling import SamplingRequest
from twostroke.server.protocol.tools import MAX_TOOLS, Choice, EarlierCall, Tools


class TextPart(RequestModel):
    """A part of a message's content. Text is the only kind."""

    type: Literal["text"] = supported(..., "The only kind there is: text.")
    text: str = supported(..., "The part's text.")


class ChatMessage(RequestModel):
    """One message, as the API gives them out too."""

    role: Literal["system", "developer", "user", "assistant", "tool"] = supported(
        ..., "Who speaks; `developer` is another name for `system`."
    )
    content: str | list[TextPart] | None = supported(None, "Text, or parts of text.")
    name: str | None = supported(None, "Given to the chat template.", max_length=MAX_NAME)
    reasoning_content: str | None = supported(None, "Earlier reasoning, where the template shows it.")
    tool_calls: Annotated[list[EarlierCall], Field(max_length=MAX_TOOLS)] | None = supported(
        None, "Calls in an earlier answer, for the template."
    )
    tool_call_id: str | None = supported(None, "Of a tool's result, for the template.", max_length=MAX_NAME)
    refusal: str | None = no_effect("Answers carry it as null.")
    annotations: list[Any] | None = refused("Citations of web pages.")
    audio: Any = refused("Spoken answers.")
    function_call: Any = refused("The older form of `tool_calls`.")


class ChatRequest(SamplingRequest):
    """A chat to be answered through the model's chat template."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)] = supported(
        ..., "The chat so far."
    )
    max_tokens: int | None = supported(None, "New tokens at most; absent, all there is room for.", ge=0, lt=2**31)
    max_completion_tokens: int | None = supported(None, "Newer name of `max_tokens`; goes first.", ge=0, lt=2**31)
    logprobs: bool | None = supported(None, "Report each token's log-probability.")
    top_logprobs: int | None = supported(None, "And the likeliest others; needs `logprobs`.", ge=0, le=MAX_LOGPROBS)
    add_generation_prompt: bool | None = supported(None, "Open the assistant's turn; the default.")
    continue_final_message: bool | None = supported(None, "Go on with the last message instead of a new one.")
    chat_template_kwargs: dict[str, Any] | None = supported(None, "Variables for the chat template.")
    tools: Tools | None = supported(None, "Functions that the model may call.")
    tool_choice: Choice | None = supported(
        None, "`auto`, the default; `none`; `required`, at least one call; or a function to be called."
    )
    parallel_tool_calls: bool | None = supported(None, "False: one call at most. True is the default.")
    functions: list[Any] | None = refused("The older form of `tools`.")
    function_call: Any = refused("The older form of `tool_choice`.", "none", "auto")
    reasoning_effort: str | None = refused("How long to reason.")
    verbosity: str | None = refused("How long to answer.")
    modalities: list[Any] | None = refused("Answers other than text.", ["text"])
    audio: Any = refused("Spoken answers.")
    prediction: Any = refused("Text that is expected, to be checked and not generated.")
    web_search_options: Any = refused("Search of the web.")
    store: bool | None = refused("Keep the answer on the server.", False)
    service_tier: str | None = refused("Another class of service.", "auto", "default")
    moderation: Any = refused("Check the text against policies.")
    metadata: dict[str, Any] | None = no_effect("Labels for stored answers; nothing is stored.")
    safety_identifier: str | None = no_effect("A label for the caller's own use.", max_length=MAX_NAME)
    prompt_cache_key: str | None = no_effect("The cache finds shared prefixes by itself.", max_length=MAX_NAME)
    prompt_cache_retention: str | None = no_effect("The cache keeps what it has room for.", max_length=MAX_NAME)
