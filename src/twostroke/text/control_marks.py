"""Marks in what a user wrote: characters that control tokens are made of, replaced one for one by private-use
characters, so that no control token can be read from them. Owns which characters and how they come back; renders
and encodes nothing.
"""

import re
from collections.abc import Iterable
from functools import cached_property
from itertools import chain

from twostroke.errors import InvalidRequestError

_PRIVATE_USE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE), range(0xE000, 0xF900))


class ControlTexts:
    """The texts of a model's control tokens. Immutable."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted({text for text in texts if text.strip()})
        self._lowered = sorted({text.lower() for text in self._texts})
        letters = {char for text in self._texts for char in text}
        self.chars = letters | {char for text in letters for char in text.lower() + text.upper()}
        """Every character of a control token, in both cases."""
        self.signs = {char for char in letters if not (char.isalnum() or char.isspace() or char == "_")}
        """Characters that set control tokens apart from words, and the first character of each."""
        self.signs |= {text[0] for text in self._texts if not text[0].isspace()}

    def starts(self, text: str) -> set[int]:
        """Positions in `text`, ignoring case, where a control token is, where one begins that the end of the text
        cuts off, or where the rest of one ends that came before the text: pieces may be joined."""
        positions = {match.start() for match in self._anywhere.finditer(text)}
        right, left = text.rstrip(), text.lstrip()
        longest = max(map(len, self._lowered), default=0)
        for size in range(1, min(longest, len(left), len(right)) + 1):
            tail, head = right[-size:].lower(), left[:size].lower()
            if any(control.startswith(tail) for control in self._lowered):
                positions.add(len(right) - size)
            if any(control.endswith(head) for control in self._lowered):
                positions.add(len(text) - len(left))
        return positions

    def readable(self, literals: Iterable[str]) -> re.Pattern[str]:
        """Captures those of a template's string constants that have signs in them and are no part of a control token,
        nor have one in them (`</think>`, say): a template may look for them in a message."""
        kept = [
            literal
            for literal in literals
            if not self.signs.isdisjoint(literal)
            and not any(literal in control or control in literal for control in self._texts)
        ]
        alternatives = "|".join(map(re.escape, sorted(kept, key=len, reverse=True))) or "(?!)"
        return re.compile(f"({alternatives})")

    @cached_property
    def _anywhere(self) -> re.Pattern[str]:
        alternatives = "|".join(map(re.escape, self._texts)) or "(?!)"
        return re.compile(f"(?={alternatives})", re.IGNORECASE)


class ControlMarks:
    """One alphabet of private-use characters that are not in `used`, and the two ways of marking with it.

    Raises InvalidRequestError when `used` leaves no private-use characters.
    """

    def __init__(self, texts: ControlTexts, used: set[str]) -> None:
        self._texts = texts
        free = (chr(code) for code in chain(*_PRIVATE_USE) if chr(code) not in used)
        self._private = dict(zip(sorted(texts.chars), free, strict=False))
        if len(self._private) != len(texts.chars):
            raise InvalidRequestError("messages use too many different private-use characters")
        self._wide = str.maketrans({char: self._private[char] for char in texts.signs})
        self._back = str.maketrans({private: char for char, private in self._private.items()})

    def wide(self, text: str) -> str:
        """Marks every sign, wherever it is: nothing a template joins or cuts can make a control token."""
        return text.translate(self._wide)

    def narrow(self, text: str, readable: re.Pattern[str]) -> str:
        """Marks every sign but those in `readable` literals, and in these too the first character of each control
        token, whole or cut off by an end of `text`. A single word stays as it is: templates compare words."""
        if text.replace("-", "_").isidentifier():
            return text
        parts = readable.split(text)
        chars = list("".join(part if index % 2 else self.wide(part) for index, part in enumerate(parts)))
        for position in self._texts.starts(text):
            chars[position] = self._private.get(text[position], chars[position])
        return "".join(chars)

    def unmark(self, text: str) -> str:
        """The text with every mark turned back."""
        return text.translate(self._back)
