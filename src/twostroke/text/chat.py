"""Messages to the text a chat model was trained on. Owns a model's chat templates, which one is used, and what it is
given; reading them from files is `chat_sources.py`'s, running them `template_process.py`'s, ids `chat_encoder.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import cast

from twostroke.errors import ChatTemplateError, InvalidRequestError
from twostroke.text.chat_sources import ChatSources
from twostroke.text.template_process import TemplateRenderer

_CONTINUE_TAG = "TheFinalMessageContinuesHere "  # its last character shows whether the template trims
_REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")


class ChatTemplate:
    """Jinja chat templates, rendered as `transformers` renders them. Immutable; safe to share between threads.

    `source` is one template, or several by name: with tools `tool_use` if there is one, else `default`. A template
    sees `bos_token`, `eos_token` and `other_tokens` (unk_token, ...) under those names, an empty one as undefined.
    `now` is the clock behind `strftime_now`. Templates run in `renderer`'s processes, for a second at most, and write
    8 MiB at most.
    """

    def __init__(
        self,
        source: str | Mapping[str, str],
        *,
        bos_token: str = "",
        eos_token: str = "",
        other_tokens: Mapping[str, str] | None = None,
        now: Callable[[], datetime] = datetime.now,
        renderer: TemplateRenderer | None = None,
    ) -> None:
        self._sources = {"default": source} if isinstance(source, str) else dict(source)
        tokens = {"bos_token": bos_token, "eos_token": eos_token, **(other_tokens or {})}
        self._tokens = {name: text for name, text in tokens.items() if text}
        self._now = now
        self._renderer = renderer or TemplateRenderer()

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> ChatTemplate:
        """The templates in a GGUF file's metadata. Raises ChatTemplateError when there is none."""
        found = ChatSources.from_gguf(metadata)
        return cls(found.templates, other_tokens=found.tokens)

    @classmethod
    def from_hf(cls, source: str | Path | Mapping[str, str]) -> ChatTemplate:
        """The templates of a Hugging Face directory, or of its text files by name. Raises ChatTemplateError when there
        is none, ModelFileError naming a file that is malformed."""
        found = ChatSources.from_hf(source)
        return cls(found.templates, other_tokens=found.tokens)

    def start(self) -> None:
        """Starts the process that renders, without waiting for it: the first rendering then need not."""
        self._renderer.start()

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
        with `add_generation_prompt`; ChatTemplateError when the template cannot render them. Content in parts is
        given as it is; where the template fails on that, as the parts' texts, a line each.
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
        text = self._rendered(given, self._chosen(tools is not None))
        return _cut_at_tag(text, final) if continue_final_message else text

    @property
    def source(self) -> str:
        """The text of the templates, one after the other."""
        return "\n".join(self._sources.values())

    @cached_property
    def literals(self) -> frozenset[str]:
        """The templates' string constants: what they can compare with or look for in a message."""
        answers = (self._renderer.ask({"source": source}) for source in self._sources.values())
        return frozenset(literal for answer in answers for literal in answer["literals"])

    def _rendered(self, given: Mapping[str, object], source: str) -> str:
        request = {"source": source, "variables": given, "now": self._now().isoformat()}
        try:
            return str(self._renderer.ask(request)["text"])
        except ChatTemplateError:
            joined = [_joined(message) for message in cast("list[dict[str, object]]", given["messages"])]
            if joined == given["messages"]:
                raise
            return str(self._renderer.ask({**request, "variables": {**given, "messages": joined}})["text"])

    def _chosen(self, has_tools: bool) -> str:
        for name in ("tool_use", "default") if has_tools else ("default",):
            if name in self._sources:
                return self._sources[name]
        known = ", ".join(sorted(self._sources))
        raise ChatTemplateError(f"the model has no default chat template, only named ones: {known}")


def plain_data(value: object, name: str) -> object:
    """A copy of JSON-like data in the exact built-in types, so that a template can reach nothing else.

    Raises InvalidRequestError naming the field `name` for any other type, or a text that is not Unicode.
    """
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidRequestError(f"{name} has a lone surrogate at position {error.start}") from None
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # an enum's own __str__ would give its name
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise InvalidRequestError(f"{name} has a key that is no text")
        return {str.__str__(key): plain_data(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(item, f"{name}[{index}]") for index, item in enumerate(value)]
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


def _joined(message: dict[str, object]) -> dict[str, object]:
    """The message with its content as one text, if it is parts of text alone."""
    content = message.get("content")
    texts = (
        [part.get("text") if isinstance(part, dict) else None for part in content] if isinstance(content, list) else []
    )
    if not texts or not all(isinstance(text, str) for text in texts):
        return message
    return {**message, "content": "\n".join(cast("list[str]", texts))}


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
