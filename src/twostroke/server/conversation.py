"""Conversation: a chat to be answered, in whichever API's words it came. Owns the way from it to engine requests.

Runs in a worker's thread: rendering, tokenising and compiling a grammar take time. Raises TwostrokeErrors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twostroke.llm.answer_text import AnswerText
from twostroke.llm.config import SamplingParams
from twostroke.llm.llm import LLM
from twostroke.server.dialect import Dialect
from twostroke.server.job import Choice
from twostroke.server.parsed_answer import ParsedAnswer
from twostroke.server.prepared import Prepared, PromptInput
from twostroke.server.tool_use import ToolUse
from twostroke.text.grammar.grammar import Grammar


@dataclass(frozen=True, slots=True)
class Conversation:
    """`messages` are as a chat template takes them, `options` go to it too. `grammar` is what the content is held to,
    `count` how many answers are wanted."""

    messages: Sequence[Mapping[str, Any]]
    params: SamplingParams
    use: ToolUse = field(default_factory=ToolUse)
    grammar: Grammar | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    count: int = 1
    salt: str = ""

    def prepare(self, llm: LLM, dialect: Dialect) -> Prepared:
        """The prompt and its choices."""
        prompt = dialect.render(self.messages, self.use, self.options)
        grammar = dialect.grammar(prompt.text, self.use, self.grammar)
        choices = [self._choice(llm, dialect, prompt.text, prompt.ids, index) for index in range(self.count)]
        for choice in choices:
            if grammar is not None:
                choice.request.constraint = dialect.constraint(grammar)
            llm.running.engine.prepare(choice.request)
        return Prepared((PromptInput(prompt.ids),), tuple(choices), self.params.seed or 0, self.count)

    def _choice(self, llm: LLM, dialect: Dialect, prompt: str, ids: Sequence[int], index: int) -> Choice:
        request = llm.request(ids, self.params, choice=index)
        request.cache_salt = self.salt
        continues = bool(self.options.get("continue_final_message"))
        reader = dialect.reader(prompt, self.use, continues=continues)
        if reader is None:
            return Choice(index, request, AnswerText(llm.tokenizer, self.params.stop_strings()))
        return Choice(index, request, ParsedAnswer(reader, llm.tokenizer.vocab_size, self.params.stop_strings()))
