"""Messages to token ids. Owns the rule that only the template writes control tokens: their text inside a message
is encoded as plain text, so a message cannot end its turn or open a system turn.

How: the chat is rendered a second time from messages with marks (`control_marks.py`). Every control token in that
rendering is then the template's own. With the marks turned back it must equal the first rendering; where it does not,
because the template looks for a text like `</think>` in a message, a marking that leaves such texts is tried.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

from twostroke.errors import ChatTemplateError
from twostroke.text.chat import ChatTemplate
from twostroke.text.control_marks import ControlMarks, ControlTexts
from twostroke.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered chat: the text as `transformers` renders it, and its ids."""

    text: str
    ids: list[int]


class ChatEncoder:
    """Renders and encodes chats for one model. Immutable; safe to share between threads.

    With `parse_content` the text of control tokens inside messages is parsed too: only for messages that are trusted.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer, *, parse_content: bool = False) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._parse_content = parse_content
        self._control_texts = ControlTexts(tokenizer.control_texts())
        template.start()

    @property
    def source(self) -> str:
        """The text of the model's chat templates."""
        return self._template.source

    def encode(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        continue_final_message: bool = False,
        **variables: object,
    ) -> ChatPrompt:
        """Text and ids of a chat; arguments and errors as for `ChatTemplate.render`. BOS is the template's to write:
        none is added."""

        def render(inputs: _Inputs) -> str:
            return self._template.render(
                inputs.messages,
                tools=inputs.tools,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                **inputs.variables,
            )

        inputs = _Inputs(messages, tools, variables)
        text = render(inputs)
        if self._parse_content:
            return ChatPrompt(text, self._tokenizer.encode(text, add_special=False, parse_special=True))
        return ChatPrompt(text, self._plain_content_ids(text, inputs, render))

    def _plain_content_ids(self, text: str, inputs: "_Inputs", render: "Callable[[_Inputs], str]") -> list[int]:
        used = set(self._template.source).union(text, *inputs.strings())
        marks = ControlMarks(self._control_texts, used)
        for mark in (marks.wide, lambda string: marks.narrow(string, self._readable)):
            marked_inputs = inputs.map(mark)
            try:
                marked = text if marked_inputs == inputs else render(marked_inputs)
            except ChatTemplateError:  # the template insists on a text that is now marked
                continue
            if marks.unmark(marked) == text:
                return self._encode_marked(marked, marks)
        raise ChatTemplateError("the chat template changes control tokens in a message; they cannot stay plain text")

    @cached_property
    def _readable(self) -> re.Pattern[str]:
        return self._control_texts.readable(self._template.literals)

    def _encode_marked(self, marked: str, marks: ControlMarks) -> list[int]:
        parts = self._tokenizer.split_special(marked)
        return self._tokenizer.encode_parts(part if isinstance(part, int) else marks.unmark(part) for part in parts)


class _Inputs(NamedTuple):
    """Everything in a rendering that the user supplies."""

    messages: Sequence[Mapping[str, object]]
    tools: Sequence[Mapping[str, object]] | None
    variables: Mapping[str, object]

    def map(self, change: Callable[[str], str]) -> "_Inputs":
        """The same with every string changed, keys included (but not the variables' names)."""
        return _Inputs(
            messages=cast("Sequence[Mapping[str, object]]", _map_strings(self.messages, change)),
            tools=cast("Sequence[Mapping[str, object]] | None", _map_strings(self.tools, change)),
            variables={name: _map_strings(value, change) for name, value in self.variables.items()},
        )

    def strings(self) -> Iterator[str]:
        """Every string, keys included."""
        yield from _strings([self.messages, self.tools, dict(self.variables)])


def _map_strings(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map_strings(key, change): _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map_strings(item, change) for item in value)
    return value


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)
