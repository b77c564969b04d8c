"""From a validated body to engine requests: the one place where text becomes token ids, and fields become sampling.

Runs in a worker's thread: rendering and tokenising take time. Raises TwostrokeErrors, which become a 400.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from twostroke.errors import InvalidRequestError
from twostroke.llm.answer_text import AnswerText
from twostroke.llm.config import SamplingParams
from twostroke.llm.llm import LLM
from twostroke.server.conversation import Conversation
from twostroke.server.dialect import Dialect
from twostroke.server.formats import asked_grammar
from twostroke.server.job import Choice
from twostroke.server.prepared import Prepared, PromptInput
from twostroke.server.protocol.chat import ChatMessage, ChatRequest
from twostroke.server.protocol.completions import DEFAULT_MAX_TOKENS, CompletionRequest
from twostroke.server.protocol.fields import MAX_ANSWERS
from twostroke.server.protocol.sampling import SamplingRequest
from twostroke.server.tool_use import ToolUse
from twostroke.text.tools.tool import Tool


def conversation_of(body: ChatRequest) -> Conversation:
    """A chat as it is to be answered."""
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequestError("top_logprobs needs logprobs: true")
    asked = body.max_completion_tokens
    params = sampling_params(
        body,
        max_tokens=body.max_tokens if asked is None else asked,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )
    return Conversation(
        messages_of(body.messages),
        params,
        use=tool_use(body),
        grammar=asked_grammar(body),
        options=render_options(body),
        count=body.n or 1,
        salt=body.cache_salt or "",
    )


def tool_use(body: ChatRequest) -> ToolUse:
    """The tools of a chat. Raises InvalidRequestError where its fields contradict each other."""
    tools = [
        Tool(
            own.function.name,
            own.function.parameters or {},
            f"tools[{index}].function.parameters",
            own.function.description or "",
            bool(own.function.strict),
        )
        for index, own in enumerate(body.tools or ())
    ]
    choice = body.tool_choice
    named = None if choice is None or isinstance(choice, str) else choice.function.name
    return ToolUse.of(
        tools, choice if isinstance(choice, str) else None, named=named, parallel=body.parallel_tool_calls
    )


def prepare_completion(llm: LLM, dialect: Dialect, body: CompletionRequest) -> Prepared:
    """A completion's prompts and their choices, each with its index: prompt after prompt."""
    max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    params = sampling_params(body, max_tokens=max_tokens, logprobs=body.logprobs)
    add_special = body.add_special_tokens is not False
    prompts = list(prompt_inputs(llm, body.prompt, add_special))
    grammar = asked_grammar(body)
    prepared = _prepared(llm, prompts, params, body, echo=bool(body.echo))
    for choice in prepared.choices:
        if grammar is not None:
            choice.request.constraint = dialect.constraint(grammar)
        llm.running.engine.prepare(choice.request)
    return prepared


def sampling_params(body: SamplingRequest, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
    """The body's sampling; a seed that is not given is drawn here, one for all choices."""
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or ()
    return SamplingParams(
        temperature=body.temperature,
        top_k=0 if body.top_k == -1 else body.top_k,
        top_p=body.top_p,
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=_biases(body.logit_bias or {}),
        seed=secrets.randbits(32) if body.seed is None else body.seed % 2**64,
        max_tokens=max_tokens,
        stop=tuple(stop),
        include_stop=bool(body.include_stop_str_in_output),
        ignore_eos=bool(body.ignore_eos),
        logprobs=logprobs,
    )


def messages_of(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """Messages as a chat template takes them."""
    plain = [message.model_dump(exclude_none=True) for message in messages]
    for message in plain:
        if message["role"] == "developer":
            message["role"] = "system"
    return plain


def render_options(body: Any) -> dict[str, Any]:
    """What of a body goes to the chat template beside the messages."""
    options = dict(body.chat_template_kwargs or {})
    reserved = {"messages", "add_generation_prompt", "tools", "continue_final_message"}.intersection(options)
    if reserved:
        raise InvalidRequestError(f"chat_template_kwargs: {min(reserved)} is a field of its own")
    goes_on = bool(getattr(body, "continue_final_message", None))
    options["continue_final_message"] = goes_on
    options["add_generation_prompt"] = (
        (not goes_on) if body.add_generation_prompt is None else body.add_generation_prompt
    )
    return options


def prompt_inputs(llm: LLM, given: Any, add_special: bool) -> Iterable[PromptInput]:
    """One prompt, a text or ids, or several of a kind."""
    is_one = isinstance(given, str) or isinstance(given[0], int)
    for prompt in [given] if is_one else given:
        if isinstance(prompt, str):
            yield PromptInput(llm.tokenizer.encode(prompt, add_special=add_special), prompt)
        else:
            yield PromptInput(prompt)


def _prepared(
    llm: LLM, prompts: Sequence[PromptInput], params: SamplingParams, body: SamplingRequest, *, echo: bool
) -> Prepared:
    count = body.n or 1
    if count * len(prompts) > MAX_ANSWERS:
        raise InvalidRequestError(f"n: {len(prompts)} prompts times {count} are over {MAX_ANSWERS} answers")
    choices: list[Choice] = []
    scored = echo and params.logprobs is not None
    for prompt in prompts:
        for number in range(count):
            request = llm.request(prompt.ids, params, choice=number, prompt_logprobs=scored)
            request.cache_salt = body.cache_salt or ""
            answer = AnswerText(llm.tokenizer, params.stop_strings(), continues=echo)
            choices.append(Choice(len(choices), request, answer))
    return Prepared(tuple(prompts), tuple(choices), params.seed or 0, count)


def _biases(given: dict[str, float]) -> dict[int, float]:
    found: dict[int, float] = {}
    for key, bias in given.items():
        if not (key.isascii() and key.isdecimal() and len(key) < 11):
            raise InvalidRequestError(f"logit_bias: {key!r} is no token id")
        found[int(key)] = bias
    return found
