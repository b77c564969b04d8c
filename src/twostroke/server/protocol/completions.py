"""Bodies of /v1/completions."""

from typing import Annotated

from pydantic import Field

from twostroke.server.protocol.fields import MAX_LOGPROBS, MAX_PROMPTS, MAX_TOKEN_IDS, refused, supported
from twostroke.server.protocol.sampling import SamplingRequest

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenIds = Annotated[list[TokenId], Field(min_length=1, max_length=MAX_TOKEN_IDS, fail_fast=True)]
Prompts = (
    str
    | TokenIds
    | Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS, fail_fast=True)]
    | Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_PROMPTS, fail_fast=True)]
)
DEFAULT_MAX_TOKENS = 16


class CompletionRequest(SamplingRequest):
    """Prompts to be continued as they are, without a chat template."""

    prompt: Prompts = supported(..., "A text, its token ids, or a list of either.")
    max_tokens: int | None = supported(
        None, f"New tokens at most; absent, {DEFAULT_MAX_TOKENS}, as the API has it.", ge=0, lt=2**31
    )
    logprobs: int | None = supported(None, "Report log-probabilities, and so many others.", ge=0, le=MAX_LOGPROBS)
    echo: bool | None = supported(None, "The prompt is part of the text; with `logprobs` it is scored too.")
    add_special_tokens: bool | None = supported(None, "Begin texts with the model's BOS, if it wants one; the default.")
    suffix: str | None = refused("Text after the completion.", "")
    best_of: int | None = refused("Several answers of which the likeliest is given.", 1)
