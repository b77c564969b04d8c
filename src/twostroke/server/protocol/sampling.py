"""Fields that every generating endpoint has: how tokens are drawn, where the answer ends, how it is delivered."""

from typing import Annotated, Any

from pydantic import Field

from twostroke.server.protocol.fields import (
    MAX_BIASES,
    MAX_CHOICES,
    MAX_NAME,
    MAX_STOP_CHARS,
    MAX_STOPS,
    RequestModel,
    no_effect,
    supported,
)
from twostroke.server.protocol.formats import Choices, ResponseFormat

StopText = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
Name = Annotated[str, Field(max_length=MAX_NAME)]
Bias = Annotated[float, Field(ge=-100, le=100)]


class StreamOptions(RequestModel):
    """What a stream has beside the answer."""

    include_usage: bool | None = supported(None, "A last chunk without choices has the usage.")
    continuous_usage_stats: bool | None = supported(None, "Every chunk has the usage so far.")
    include_obfuscation: bool | None = no_effect("Nothing is padded: chunks are sent as they are.")


class SamplingRequest(RequestModel):
    """Sampling and delivery. What is not given is the model's own default."""

    model: Name | None = supported(None, "A name that /v1/models lists; absent, the model that is served.")
    stream: bool | None = supported(None, "Send server-sent events as tokens come.")
    stream_options: StreamOptions | None = supported(None, "Only with `stream`.")
    return_progress: bool | None = supported(
        None, "With `stream`: chunks with `prompt_progress` while the prompt is processed."
    )
    temperature: float | None = supported(None, "0 always takes the likeliest token.", ge=0, le=1e9)
    top_p: float | None = supported(None, "Draw from the likeliest tokens of this probability together.", gt=0, le=1)
    top_k: int | None = supported(None, "Draw from the k likeliest tokens; 0 or -1 is all.", ge=-1, lt=2**31)
    min_p: float | None = supported(None, "Leave out tokens below this fraction of the likeliest's.", ge=0, le=1)
    presence_penalty: float | None = supported(None, "Taken from logits of tokens in the answer.", ge=-100, le=100)
    frequency_penalty: float | None = supported(None, "The same for each time a token is in it.", ge=-100, le=100)
    repetition_penalty: float | None = supported(None, "Above 1: tokens seen become less likely.", ge=0.01, le=100)
    logit_bias: Annotated[dict[str, Bias], Field(max_length=MAX_BIASES)] | None = supported(
        None, "Added to the logits of tokens, by token id."
    )
    seed: int | None = supported(None, "Makes the answer repeatable.", ge=-(2**63), lt=2**64)
    n: int | None = supported(None, "Answers to each prompt; each draws for itself.", ge=1, le=MAX_CHOICES)
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = supported(
        None, "The answer ends before the first of these texts, which is no part of it."
    )
    ignore_eos: bool | None = supported(None, "Go on after the model's end-of-text token.")
    cache_salt: str | None = supported(
        None, "Share cached prompts only with requests of the same salt.", max_length=MAX_NAME
    )
    response_format: ResponseFormat | None = supported(None, "The answer is text, a JSON object, or JSON by a schema.")
    regex: str | None = supported(None, "The answer matches this regular expression as a whole (Rust's regex syntax).")
    grammar: str | None = supported(None, "The answer is of this grammar, in llguidance's dialect of Lark.")
    guided_json: dict[str, Any] | None = supported(None, "A JSON schema; another name of `response_format`'s.")
    guided_regex: str | None = supported(None, "Another name of `regex`.")
    guided_grammar: str | None = supported(None, "Another name of `grammar`.")
    guided_choice: Choices | None = supported(None, "The answer is one of these texts.")
    user: str | None = no_effect("A label for the caller's own use.", max_length=MAX_NAME)
    include_stop_str_in_output: bool | None = supported(
        None, "The stop text that ended the answer is its last part, instead of none."
    )
