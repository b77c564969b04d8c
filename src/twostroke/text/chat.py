"""Messages to the text a chat model was trained on. Owns a model's chat template and what a template is given; ids are
`chat_encoder.py`'s, the Jinja sandbox `chat_environment.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from twostroke.errors import ChatTemplateError, InvalidRequestError

if TYPE_CHECKING:
    from twostroke.text.chat_environment import CompiledTemplate

_CONTINUE_TAG = "TheFinalMessageContinuesHere "  # its last character shows whether the template trims
_REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
_TOKEN_KEYS = {"unk_token": "unknown_token_id", "pad_token": "padding_token_id", "sep_token": "seperator_token_id"}


class ChatTemplate:
    """A Jinja chat template, rendered as `transformers` renders it. Immutable; safe to share between threads.

    A template sees `bos_token`, `eos_token` and `other_tokens` (unk_token, ...) under those names, an empty one as
    undefined. `now` is the clock behind `strftime_now`.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        other_tokens: Mapping[str, str] | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.source = source
        tokens = {"bos_token": bos_token, "eos_token": eos_token, **(other_tokens or {})}
        self._tokens = {name: text for name, text in tokens.items() if text}
        self._now = now

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> ChatTemplate:
        """The template in a GGUF file's metadata. Raises ChatTemplateError when there is none."""
        source = metadata.get("tokenizer.chat_template")
        if not isinstance(source, str) or not source.strip():
            raise ChatTemplateError("the model has no chat template; use --raw to give it the prompt as it is")
        others = {name: _token_text(metadata, key) for name, key in _TOKEN_KEYS.items()}
        return cls(
            source,
            bos_token=_token_text(metadata, "bos_token_id"),
            eos_token=_token_text(metadata, "eos_token_id"),
            other_tokens=others,
        )

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        continue_final_message: bool = False,
        **variables: object,
    ) -> str:
        """The text for `messages` (role, content, tool_calls, ... as in the OpenAI API; None is as good as absent).

        `continue_final_message` ends the text where the last message's content ends. `variables` are passed to the
        template. Raises InvalidRequestError for messages that are not plain data, or for `continue_final_message`
        with `add_generation_prompt`; ChatTemplateError when the template cannot render them.
        """
        if continue_final_message and add_generation_prompt:
            raise InvalidRequestError("continue_final_message and add_generation_prompt exclude each other")
        chat = [_message(message, index) for index, message in enumerate(messages)]
        if not chat:
            raise InvalidRequestError("messages is empty")
        final = _tag_final(chat) if continue_final_message else ""
        given = {
            **self._tokens,
            "documents": None,
            **{name: plain_data(value, name) for name, value in variables.items()},
            "messages": chat,
            "tools": None if tools is None else plain_data(tools, "tools"),
            "add_generation_prompt": add_generation_prompt,
        }
        text = self._compiled.render(given)
        return _cut_at_tag(text, final) if continue_final_message else text

    @property
    def literals(self) -> frozenset[str]:
        """The template's string constants: what it can compare with or look for in a message."""
        return self._compiled.literals

    @cached_property
    def _compiled(self) -> CompiledTemplate:
        from twostroke.text.chat_environment import CompiledTemplate

        return CompiledTemplate(self.source, self._now)


def plain_data(value: object, name: str) -> object:
    """A copy of JSON-like data in the exact built-in types, so that a template can reach nothing else.

    Raises InvalidRequestError naming the field `name` for any other type.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # an enum's own __str__ would give its name
    if isinstance(value, Mapping):
        return {plain_data(key, name): plain_data(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain_data(item, f"{name}[{index}]") for index, item in enumerate(value))
    raise InvalidRequestError(f"{name} must be plain data, found {type(value).__name__}")


def _message(message: Mapping[str, object], index: int) -> dict[object, object]:
    """One message as templates expect it: no None values, reasoning under both names that templates read."""
    name = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise InvalidRequestError(f"{name} must be an object, found {type(message).__name__}")
    plain: dict[object, object] = {
        key: plain_data(value, f"{name}.{key}") for key, value in message.items() if value is not None
    }
    reasoning = next((plain[key] for key in _REASONING_KEYS if key in plain), None)
    if reasoning is not None:
        plain = {"thinking": reasoning, **plain, "reasoning_content": reasoning}
    return plain


def _tag_final(chat: list[dict[object, object]]) -> str:
    """Appends the tag to the text of the last message, in place, and returns that text without it."""
    content = chat[-1].get("content")
    if isinstance(content, str):
        chat[-1]["content"] = content + _CONTINUE_TAG
        return content
    parts = content if isinstance(content, (list, tuple)) else ()
    for part in reversed(parts):
        if isinstance(part, dict) and isinstance(text := part.get("text"), str):
            part["text"] = text + _CONTINUE_TAG
            return text
    raise InvalidRequestError("continue_final_message: the last message has no text to continue")


def _cut_at_tag(text: str, final: str) -> str:
    tag = _CONTINUE_TAG.strip()
    if tag not in text or final.strip() not in text:
        raise ChatTemplateError("continue_final_message: the chat template does not show the last message's text")
    head, _, tail = text.rpartition(tag)
    return head if tail.startswith(_CONTINUE_TAG[len(tag) :]) else head.rstrip()


def _token_text(metadata: Mapping[str, object], key: str) -> str:
    """The token a `tokenizer.ggml.*_token_id` key names, empty when it names none."""
    token_id = metadata.get(f"tokenizer.ggml.{key}")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(token_id, int) or not isinstance(tokens, Sequence) or not 0 <= token_id < len(tokens):
        return ""
    return str(tokens[token_id])
