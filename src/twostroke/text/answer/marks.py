"""Marks in an answer: the texts that set reasoning and tool calls apart. Owns how they are recognised, by id where the
vocabulary has them as one token, else by text; what they mean is their readers'.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from twostroke.text.detokenizer import Detokenizer
from twostroke.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark. `is_control`: a control token, which no reader sees even where it means nothing."""

    text: str
    is_control: bool = False

    @property
    def visible(self) -> str:
        return "" if self.is_control else self.text


Piece = str | Mark


def mark_ids(tokenizer: Tokenizer, marks: Iterable[str]) -> dict[int, str]:
    """The marks that the vocabulary has as one token, by id."""
    found = {mark: tokenizer.split_special(mark) for mark in marks}
    return {parts[0]: mark for mark, parts in found.items() if len(parts) == 1 and isinstance(parts[0], int)}


class MarkedText:
    """Turns one stream of ids into texts and marks. The texts and the marks' visible texts, joined, are what
    `Detokenizer` makes of the same ids.

    A mark that is a token in the vocabulary is only that token: the same letters in other tokens are text. No mark
    may begin another or be within it. `continues` is `Detokenizer`'s.
    """

    def __init__(self, tokenizer: Tokenizer, marks: Iterable[str], *, continues: bool = False) -> None:
        self._tokenizer = tokenizer
        marks = set(marks)
        self._by_id = {
            token_id: Mark(text, tokenizer.is_special(token_id))
            for token_id, text in mark_ids(tokenizer, marks).items()
        }
        self._spelled = sorted(marks - {mark.text for mark in self._by_id.values()})
        self._pattern = re.compile("|".join(map(re.escape, self._spelled)) or "(?!)")
        self._detokenizer = Detokenizer(tokenizer, continues=continues)
        self._held = ""

    def push(self, token_id: int) -> list[Piece]:
        """The pieces that are certain with `token_id`. Raises InvalidRequestError for an unknown id."""
        mark = self._by_id.get(token_id)
        if mark is None:
            return self._found(self._detokenizer.push(token_id))
        pieces = [*self.finish(), mark]
        self._detokenizer = Detokenizer(self._tokenizer, continues=True)
        return pieces

    def finish(self) -> list[Piece]:
        """What is still held at the end."""
        pieces = self._found(self._detokenizer.flush())
        if self._held:
            pieces.append(self._held)
        self._held = ""
        return pieces

    def _found(self, text: str) -> list[Piece]:
        text = self._held + text
        pieces: list[Piece] = []
        start = 0
        for match in self._pattern.finditer(text):
            if match.start() > start:
                pieces.append(text[start : match.start()])
            pieces.append(Mark(match.group()))
            start = match.end()
        end = len(text) - self._num_held(text[start:])
        if end > start:
            pieces.append(text[start:end])
        self._held = text[end:]
        return pieces

    def _num_held(self, text: str) -> int:
        """Length of the longest end of `text` that begins a mark."""
        longest = max(map(len, self._spelled), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(mark.startswith(text[-length:]) for mark in self._spelled):
                return length
        return 0
