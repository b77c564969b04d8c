"""Dialect: how the served model is told of tools, held to a format, and read. Owns what of this is the model's and not
a request's; forms of calls, grammars and readers are the text floor's.
"""

from collections.abc import Mapping, Sequence
from threading import Thread
from typing import Any

from twostroke.engine.constraint import Constraint
from twostroke.errors import ChatTemplateError, InvalidRequestError
from twostroke.llm.llm import LLM
from twostroke.server.tool_use import ToolUse
from twostroke.text.answer_format import AnswerFormat
from twostroke.text.answer_grammar import AnswerGrammar
from twostroke.text.answer_reader import AnswerReader
from twostroke.text.chat_encoder import ChatEncoder, ChatPrompt
from twostroke.text.grammar.grammar import Grammar
from twostroke.text.tools.tool_prompt import with_arguments, with_tools_told


class Dialect:
    """One model's. Thread-safe."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        encoder = llm.running.loaded.encoder
        self.form = AnswerFormat.of(encoder.source if isinstance(encoder, ChatEncoder) else "")
        self._grammars = AnswerGrammar(self.form, llm.tokenizer)
        self._compiler = self._grammars.compiler()

    def prepare(self) -> None:
        """Makes ready in the background what the first grammar would have to wait for."""
        Thread(target=self._compiler.prepare, name="grammars", daemon=True).start()

    def render(self, messages: Sequence[Mapping[str, Any]], use: ToolUse, options: Mapping[str, Any]) -> ChatPrompt:
        """The prompt of a chat. Raises ChatTemplateError, InvalidRequestError."""
        if not use.shown and not any(message.get("tool_calls") or message["role"] == "tool" for message in messages):
            return self._llm.render(messages, **options)
        options = dict(options)
        if use.shown and self.form.shows_tools:
            shown = [tool.template_form() for tool in use.shown]
            options |= {"tools": shown, "xml_tools": shown}  # SmolLM3's name for them
        elif not self.form.shows_tools:
            messages = with_tools_told(messages, use.shown, self.form.tools)
        try:
            return self._llm.render(with_arguments(messages, as_objects=True), **options)
        except ChatTemplateError as error:  # some templates join the arguments to a text
            try:
                return self._llm.render(with_arguments(messages, as_objects=False), **options)
            except ChatTemplateError:
                raise error from None

    def grammar(self, prompt: str, use: ToolUse, content: Grammar | None) -> Grammar | None:
        """What the answer to a prompt is held to, if to anything. Raises InvalidRequestError for a format and tools
        together, or a schema that cannot be enforced."""
        if content is not None:
            if use.shown:
                raise InvalidRequestError(
                    f"{content.name} and tools exclude each other; tool_choice: none leaves the format"
                )
            return self._grammars.holding(content, prompt)
        if not use.needs_grammar:
            return None
        make = self._grammars.calling if use.must_call else self._grammars.allowing
        return make(use.callable, prompt, holds_many=use.holds_many and not use.is_named)

    def constraint(self, grammar: Grammar) -> Constraint:
        """A new one at the grammar's start. Raises InvalidRequestError."""
        return self._compiler.constraint(grammar)

    def reader(self, prompt: str, use: ToolUse, *, continues: bool) -> AnswerReader | None:
        """What reads an answer; None where it is nothing but text."""
        if not use.callable and not self.form.reasons:
            return None
        return AnswerReader(
            self.form, self._llm.tokenizer, prompt=prompt, schemas=use.schemas or None, continues=continues
        )
