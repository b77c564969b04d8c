"""Tokens that are found in a text as they read, before anything else cuts it. Owns where they match and what white
space they take with them; what they mean is the vocabulary's, the text between them the segmenter's.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

_SPACES = re.compile(r"\s*")


class AddedToken(NamedTuple):
    """One such token: its id, its text, whether it is a control token, and the flags of `tokenizer.json`.

    `lstrip` and `rstrip` take the white space on that side; `single_word` matches only where no letter, digit or
    underscore touches it.
    """

    token_id: int
    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class AddedTokens:
    """Finds tokens in a text: the leftmost, then the longest. Immutable.

    `alike` is a pair of characters taken as one: SentencePiece writes spaces as U+2581. Time is linear in the text,
    whatever the number of tokens: at a character that begins one, each length that occurs is looked up.
    """

    def __init__(self, tokens: Iterable[AddedToken], alike: tuple[str, str] = ("", "")) -> None:
        self._alike = str.maketrans(*alike)
        self._tokens = {token.content.translate(self._alike): token for token in tokens if token.content}
        sizes: dict[str, set[int]] = {}
        for content in self._tokens:
            sizes.setdefault(content[0], set()).add(len(content))
        self._sizes = {first: sorted(lengths, reverse=True) for first, lengths in sizes.items()}
        self._first = re.compile(f"[{''.join(map(re.escape, sizes))}]" if sizes else "(?!)")

    def split(self, text: str) -> list[int | str]:
        """`text` in order: ids of the tokens found, and the non-empty strings between them."""
        parts: list[int | str] = []
        start = position = 0
        view = text.translate(self._alike) if self._alike else text
        while (found := self._first.search(view, position)) is not None:
            left = found.start()
            token = self._longest_at(view, left)
            if token is None:
                position = left + 1
                continue
            right = left + len(token.content)
            if token.rstrip and (spaces := _SPACES.match(text, right)) is not None:
                right = spaces.end()
            between = text[start:left].rstrip() if token.lstrip else text[start:left]
            if between:
                parts.append(between)
            parts.append(token.token_id)
            start = position = right
        if start < len(text):
            parts.append(text[start:])
        return parts

    def _longest_at(self, text: str, left: int) -> AddedToken | None:
        for size in self._sizes[text[left]]:
            token = self._tokens.get(text[left : left + size])
            if token is not None and not (token.single_word and _touches_word(text, left, left + size)):
                return token
        return None


def _touches_word(text: str, left: int, right: int) -> bool:
    before, after = text[left - 1 : left], text[right : right + 1]
    return any(char.isalnum() or char == "_" for char in (before, after))
