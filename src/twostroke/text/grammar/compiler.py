"""GrammarCompiler: grammars to constraints, for one vocabulary. Owns the compiled grammars that are kept, and how much
work one may take; languages are `grammar.py`'s.
"""

import json
from collections import OrderedDict
from collections.abc import Collection
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from twostroke.errors import InvalidRequestError
from twostroke.text.grammar.constraint import Constraint, named_panics, one_line
from twostroke.text.grammar.grammar import Grammar
from twostroke.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

NUM_KEPT = 64  # compiled grammars; their number and the limits below bound the memory
# Work in llguidance's own units: about 50,000 a ms to compile and 14,000 a ms for a step's lexer, 20,000 items a ms.
_COMPILE_FUEL = 5_000_000
_STEP_FUEL = 400_000
_STEP_ITEMS = 100_000
_LEXER_STATES = 50_000
_GRAMMAR_SYMBOLS = 200_000


class GrammarCompiler:
    """Compiles for one tokenizer. Thread-safe; compiling releases the GIL and belongs off an event loop.

    `marks` are ids that a grammar names by id and no text of it can be: control tokens always are.
    """

    def __init__(self, tokenizer: Tokenizer, marks: Collection[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._marks = frozenset(marks)
        self._lock, self._building = Lock(), Lock()
        self._kept: OrderedDict[Grammar, Constraint] = OrderedDict()

    def constraint(self, grammar: Grammar) -> Constraint:
        """A new constraint at the start of `grammar`. Raises InvalidRequestError naming the grammar's field and what is
        wrong with it, cannot be enforced, or takes too much."""
        with self._lock:
            kept = self._kept.get(grammar)
        if kept is None:
            with named_panics(grammar.name):
                kept = self._compiled(grammar)
        with self._lock:
            self._kept[grammar] = kept
            self._kept.move_to_end(grammar)
            if len(self._kept) > NUM_KEPT:
                self._kept.popitem(last=False)
            return kept.copy()

    def prepare(self) -> None:
        """Builds what every grammar needs of the vocabulary: up to seconds where it is large."""
        with self._building:
            _ = self._vocabulary

    def _compiled(self, grammar: Grammar) -> Constraint:
        from llguidance import LLMatcher, LLParserLimits

        self.prepare()
        limits = LLParserLimits(
            initial_lexer_fuel=_COMPILE_FUEL,
            step_lexer_fuel=_STEP_FUEL,
            step_max_items=_STEP_ITEMS,
            max_lexer_states=_LEXER_STATES,
            max_grammar_size=_GRAMMAR_SYMBOLS,
            verbose_errors=False,
        )
        text = _source(grammar)
        is_error, messages = LLMatcher.validate_grammar_with_warnings(text, self._vocabulary, limits=limits)
        if is_error or messages:  # a warning is of something that would be left out
            raise InvalidRequestError(f"{grammar.name}: {one_line(messages[0])}")
        matcher = LLMatcher(self._vocabulary, text, log_level=0, limits=limits)
        compiled = Constraint(matcher, grammar.name)
        compiled.fill_mask(
            np.empty((self._tokenizer.vocab_size + 31) // 32, np.uint32)
        )  # what no text satisfies is refused here, not in a step
        return compiled

    @cached_property
    def _vocabulary(self) -> "LLTokenizer":
        from llguidance import LLTokenizer

        words: Any = _Words(self._tokenizer, self._marks)
        return LLTokenizer(words, eos_token=sorted(self._tokenizer.eos_ids) or [words.eos_token_id])


def _source(grammar: Grammar) -> str:
    """The grammar as llguidance reads it: Lark, or a list of grammars of which the first is the whole."""
    from llguidance import LLMatcher

    text = grammar.text
    if grammar.kind == "regex":
        text = json.loads(LLMatcher.grammar_from_regex(text))["grammars"][0]["lark_grammar"]
    if not grammar.before:
        return text
    whole = f"start: before @answer\n{grammar.before}"
    return json.dumps(
        {"grammars": [{"name": "whole", "lark_grammar": whole}, {"name": "answer", "lark_grammar": text}]}
    )


class _Words:
    """A tokenizer as llguidance asks for it: bytes of each id, which are marks, and how text is cut."""

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: Tokenizer, marks: Collection[int]) -> None:
        ids = range(tokenizer.vocab_size)
        self._tokenizer = tokenizer
        self.bos_token_id = tokenizer.bos_id
        self.eos_token_id = min(tokenizer.eos_ids, default=tokenizer.vocab_size - 1)
        self.special_token_ids = [one for one in ids if tokenizer.is_special(one) or one in marks]
        self.tokens = [tokenizer.token_bytes(one) for one in ids]

    def __call__(self, text: str | bytes) -> list[int]:
        return self._tokenizer.encode(text, add_special=False)
