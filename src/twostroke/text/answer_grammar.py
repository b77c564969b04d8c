"""AnswerGrammar: grammars for whole answers of one model, reasoning and marks included. Owns what stands around a
format or a call; those themselves are `grammar/`'s and `tools/`'s.
"""

from collections.abc import Sequence
from dataclasses import replace

from twostroke.text.answer.marks import mark_ids
from twostroke.text.answer_format import AnswerFormat
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.grammar.grammar import Grammar, Spelling
from twostroke.text.tokenizer import Tokenizer
from twostroke.text.tools.call_rules import bare_rules, call_rules
from twostroke.text.tools.tool import Tool

_FINAL = "<|channel|>final<|message|>"
_NO_CALL = r"[ \n]*([^ \n{\[`]|`{1,2}[^`]|```[^`j \n{\[])"  # how a text begins that is no JSON


class AnswerGrammar:
    """For one model. Immutable."""

    def __init__(self, form: AnswerFormat, tokenizer: Tokenizer) -> None:
        self._form = form
        self._mark_ids = mark_ids(tokenizer, form.marks)
        self._spelling = Spelling(self._mark_ids)
        self._tokenizer = tokenizer

    def compiler(self) -> GrammarCompiler:
        """A compiler in which this model's marks are marks."""
        return GrammarCompiler(self._tokenizer, self._mark_ids)

    def holding(self, grammar: Grammar, prompt: str) -> Grammar:
        """Answers in which the content is of `grammar`, after whatever the model thinks first. `prompt` is the text
        that the answer follows."""
        before = self._before(prompt)
        if self._form.is_harmony:
            before = before.replace("before: thought?", f"before: thought? {self._spelling.of(_FINAL)}")
        return replace(grammar, before=before)

    def calling(self, tools: Sequence[Tool], prompt: str, *, holds_many: bool) -> Grammar:
        """Answers that are calls to these tools and nothing else, at least one. Raises InvalidRequestError naming a
        schema's keyword that cannot be enforced."""
        rules = call_rules(self._form.tools, tools, self._spelling, holds_many=holds_many)
        return Grammar("lark", f"start: calls\n{rules}", "tools", self._before(prompt))

    def allowing(self, tools: Sequence[Tool], prompt: str, *, holds_many: bool) -> Grammar:
        """Answers of text or calls, or text and then calls where a mark that is a token begins them; calls are held to
        the tools' schemas. Raises as `calling` does."""
        form = self._form.tools
        rules = call_rules(form, tools, self._spelling, holds_many=holds_many)
        if self._form.is_harmony:
            rules += f"text: {self._spelling.of(_FINAL)} TEXT\nTEXT: /(.|\\n)*/\n"
            return Grammar("lark", f"start: text | calls\n{rules}", "tools", self._before(prompt))
        rules += self._spelling.text_without("text", (*form.begins, *form.passed), _NO_CALL if form.is_bare else "")
        begin = form.written.opening or form.written.head
        follow = " | text calls" if begin.startswith(tuple(self._mark_ids.values()) or ("\0",)) else ""
        if form.is_bare and not form.written.head.startswith("{"):
            follow += " | bare"
            rules += "\n" + bare_rules(tools)
        return Grammar("lark", f"start: text | calls{follow}\n{rules}", "tools", self._before(prompt))

    def _before(self, prompt: str) -> str:
        """Rules for what the model may think before it answers; none where it may not."""
        if self._form.is_harmony:
            opening = self._spelling.of("<|channel|>analysis<|message|>")
            closing = self._spelling.text_until("thought_text", "<|end|><|start|>assistant")
            return "\n".join(["before: thought?", f"thought: {opening} thought_text", *closing, ""])
        tags = self._form.reasoning
        if tags is None or prompt.rstrip().endswith(tags.closing):
            return ""
        closing = self._spelling.text_until("thought_text", tags.closing)
        rules = [*closing, "thought: thought_text BLANKS?", r"BLANKS: /[ \n]{1,4}/", ""]
        is_open = tags.are_open(prompt)
        return "\n".join(
            ["before: thought" if is_open else f"before: ({self._spelling.of(tags.opening)} thought)?", *rules]
        )
