"""Bodies of /tokenize and /detokenize."""

from typing import Annotated, Any

from pydantic import Field

from twostroke.server.protocol.chat import ChatMessage
from twostroke.server.protocol.completions import TokenId
from twostroke.server.protocol.fields import MAX_MESSAGES, MAX_TOKEN_IDS, RequestModel, supported
from twostroke.server.protocol.sampling import Name


class TokenizeRequest(RequestModel):
    """A text, or a chat, whose token ids are wanted."""

    model: Name | None = supported(None, "A name that /v1/models lists; absent, the model that is served.")
    prompt: str | None = supported(None, "The text; or else `messages`.")
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)] | None = (
        supported(None, "A chat, rendered by the chat template.")
    )
    add_special_tokens: bool | None = supported(None, "Begin a text with the model's BOS, if it wants one; default.")
    parse_special: bool | None = supported(None, "The text of a control token is that token; not by default.")
    add_generation_prompt: bool | None = supported(None, "Open the assistant's turn; the default.")
    chat_template_kwargs: dict[str, Any] | None = supported(None, "Variables for the chat template.")


class DetokenizeRequest(RequestModel):
    """Token ids whose text is wanted."""

    model: Name | None = supported(None, "A name that /v1/models lists; absent, the model that is served.")
    tokens: Annotated[list[TokenId], Field(max_length=MAX_TOKEN_IDS, fail_fast=True)] = supported(..., "The ids.")
    skip_special_tokens: bool | None = supported(None, "Leave control tokens out; not by default.")
