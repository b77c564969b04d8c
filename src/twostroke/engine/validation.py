"""Validation: whether a request can be run at all, said before it is queued. Owns every range; changes nothing."""

import math
from collections.abc import Sequence

import numpy as np

from twostroke.engine.request import GenerationParams, Request
from twostroke.errors import ContextLengthError, InvalidRequestError, NotEnoughMemoryError
from twostroke.native.batch import Sampling


def require(condition: bool, field: str, rule: str, value: object) -> None:
    """Raises InvalidRequestError naming the field where the condition does not hold."""
    if not condition:
        raise InvalidRequestError(f"{field} must be {rule}, not {value}")


def check_request(request: Request, vocab_size: int) -> None:
    """Every field in its range. Raises InvalidRequestError naming the first that is not."""
    if not len(request.prompt_ids):
        raise InvalidRequestError("the prompt is empty: it needs at least one token")
    check_ids("prompt token", request.prompt_ids, vocab_size)
    check_ids("forced token", request.forced_ids, vocab_size)
    check_params(request.params, vocab_size)
    _check_hidden(request)
    alone = request.constraint is None or not (len(request.forced_ids) or request.params.num_hidden)
    require(alone, "constraint", "None where tokens are forced or hidden rows wanted", "one")


def check_ids(field: str, token_ids: Sequence[int], vocab_size: int) -> None:
    if len(token_ids):
        for token_id in token_ids:
            require(isinstance(token_id, int | np.integer), field, "a whole number", repr(token_id))
        low, high = min(token_ids), max(token_ids)
        require(low >= 0, field, f"an id of the vocabulary (0 to {vocab_size - 1})", low)
        require(high < vocab_size, field, f"an id of the vocabulary (0 to {vocab_size - 1})", high)


def check_params(params: GenerationParams, vocab_size: int) -> None:
    if params.max_tokens is not None:
        require(_is_number(params.max_tokens, int), "max_tokens", "a whole number", repr(params.max_tokens))
        require(params.max_tokens >= 0, "max_tokens", "at least 0", params.max_tokens)
    check_sampling(params.sampling, vocab_size)


def _check_hidden(request: Request) -> None:
    params, num_prompt = request.params, len(request.prompt_ids)
    require(0 <= params.num_hidden <= num_prompt, "num_hidden", f"from 0 to {num_prompt}", params.num_hidden)
    if params.num_hidden:
        is_alone = params.max_tokens == 0 and not params.prompt_logprobs and not len(request.forced_ids)
        require(is_alone, "num_hidden", "0 where tokens or scores are wanted", params.num_hidden)


def _check_types(s: Sampling) -> None:
    """Wrong types would fail only inside a step, and there take its other requests with them."""
    for field in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
        value = getattr(s, field)
        require(_is_number(value, int, float), field, "a number", repr(value))
    for field in ("top_k", "seed", "choice", "num_logprobs"):
        value = getattr(s, field)
        require(_is_number(value, int), field, "a whole number", repr(value))
    for token_id, bias in s.logit_bias:
        require(_is_number(token_id, int), "logit_bias id", "a whole number", repr(token_id))
        require(_is_number(bias, int, float), f"logit_bias of {token_id}", "a number", repr(bias))


def _is_number(value: object, *types: type) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)


def check_sampling(s: Sampling, vocab_size: int) -> None:
    _check_types(s)
    require(math.isfinite(s.temperature) and s.temperature >= 0, "temperature", "a number from 0 on", s.temperature)
    require(0 <= s.top_k < 2**31, "top_k", "from 0 to 2^31 - 1", s.top_k)
    require(0 < s.top_p <= 1, "top_p", "above 0 and at most 1", s.top_p)
    require(0 <= s.min_p <= 1, "min_p", "from 0 to 1", s.min_p)
    positive = math.isfinite(s.repetition_penalty) and s.repetition_penalty > 0
    require(positive, "repetition_penalty", "a number above 0", s.repetition_penalty)
    require(math.isfinite(s.presence_penalty), "presence_penalty", "a finite number", s.presence_penalty)
    require(math.isfinite(s.frequency_penalty), "frequency_penalty", "a finite number", s.frequency_penalty)
    require(0 <= s.seed < 2**64, "seed", "from 0 to 2^64 - 1", s.seed)
    require(0 <= s.choice < 2**32, "choice", "from 0 to 2^32 - 1", s.choice)
    require(-1 <= s.num_logprobs <= vocab_size, "num_logprobs", f"from -1 to {vocab_size}", s.num_logprobs)
    for token_id, bias in s.logit_bias:
        require(0 <= token_id < vocab_size, "logit_bias id", f"from 0 to {vocab_size - 1}", token_id)
        require(math.isfinite(bias), f"logit_bias of {token_id}", "a finite number", bias)


def resolve_max_tokens(request: Request, context_length: int, pool_tokens: int) -> int:
    """New tokens the request may get: what it asked for, or all the room there is.

    Raises ContextLengthError where prompt and answer exceed the context, NotEnoughMemoryError where they exceed the
    `pool_tokens` of the whole KV pool; both with the numbers. The last new token is never in the cache.
    """
    given = len(request.prompt_ids) + len(request.forced_ids)
    asked = request.params.max_tokens
    if given + (asked or 0) > context_length:
        plus = f" plus {asked} new tokens" if asked else ""
        total = f" ({given + asked} in all)" if asked else ""
        raise ContextLengthError(
            f"the prompt of {given} tokens{plus} exceeds the context of {context_length} tokens{total}"
        )
    cached = given + max(0, (asked or 0) - 1)
    if cached > pool_tokens:
        raise NotEnoughMemoryError(f"the request needs {cached} tokens of KV cache; the pool has {pool_tokens}")
    if asked is not None:
        return asked
    if given == context_length:
        raise ContextLengthError(f"the prompt of {given} tokens fills the context of {context_length} tokens")
    return min(context_length, pool_tokens + 1) - given
