"""How large a pattern becomes when its counted repeats are written out. Owns the bound that llguidance's own do not
set: `(a{99}){99}` is small in every other measure, and slow.
"""

import re
from collections.abc import Mapping

from twostroke.errors import InvalidRequestError

MAX_EXPANSION = 10_000  # characters; about 30 ms in the slowest step

_COUNT = re.compile(r"\{(\d{1,9})(,?)(\d{0,9})\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]", re.DOTALL)
_DEFINITION = re.compile(r"^[ \t]*[?!]?(\w+)(?:\.\d+)?[ \t]*(?:\[[^\]\n]*\])?[ \t]*:", re.MULTILINE)
_LARK_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"i?|/(?:\\.|[^/\\\n])+/[imslux]*|//[^\n]*|\w+|\{[\d,]+\}|[()]', re.DOTALL)


def check_pattern(pattern: str, name: str) -> None:
    """Raises InvalidRequestError, naming the field, for a regular expression that is too large written out."""
    _check(_Sizes(pattern).total, name)


def check_lark(text: str, name: str) -> None:
    """The same for a grammar in Lark: its rules one by one, its terminals with those that they are made of."""
    parts = _DEFINITION.split(text)
    definitions = dict(zip(parts[1::2], parts[2::2], strict=True))
    for key in definitions:
        _check(_lark_size(key, definitions, ()), name)


def _check(size: int, name: str) -> None:
    if size > MAX_EXPANSION:
        raise InvalidRequestError(f"{name}: a pattern has {size} characters written out; at most {MAX_EXPANSION}")


class _Sizes:
    """Sums sizes of what stands in a group, and multiplies the last by the count that follows it."""

    def __init__(self, pattern: str = "") -> None:
        self._groups: list[tuple[int, int]] = []
        self._sum = self._last = 0
        position = 0
        while position < len(pattern):
            position += self._take(pattern, position)

    @property
    def total(self) -> int:
        """All there is, groups that are not closed included."""
        return sum(total + last for total, last in self._groups) + self._sum + self._last

    def add(self, size: int) -> None:
        self._sum, self._last = self._sum + self._last, size

    def open(self) -> None:
        self._groups.append((self._sum + self._last, 0))
        self._sum = self._last = 0

    def close(self) -> None:
        before, _ = self._groups.pop() if self._groups else (0, 0)
        self._sum, self._last = before, self._sum + self._last

    def repeat(self, count: str) -> bool:
        """Whether `count` was one, as in `{2,5}`."""
        match = _COUNT.fullmatch(count)
        if match is not None:
            self._last *= max(1, int(match[1]), int(match[3] or 0))
        return match is not None

    def _take(self, pattern: str, position: int) -> int:
        """Takes one part of a regular expression and returns its length."""
        char = pattern[position]
        if char == "(":
            self.open()
        elif char == ")":
            self.close()
        elif char == "{" and (match := _COUNT.match(pattern, position)) is not None:
            self.repeat(match.group())
            return len(match.group())
        elif char == "[" and (match := _CLASS.match(pattern, position)) is not None:
            self.add(1)
            return len(match.group())
        elif char not in "*+?|":
            self.add(1)
            return 2 if char == "\\" else 1
        return 1


def _lark_size(key: str, definitions: Mapping[str, str], inside: tuple[str, ...]) -> int:
    sizes = _Sizes()
    for match in _LARK_TOKEN.finditer(definitions[key]):
        token = match.group()
        if token == "(":
            sizes.open()
        elif token == ")":
            sizes.close()
        elif token.startswith("//") or sizes.repeat(token):
            continue
        elif token.startswith("/"):
            sizes.add(_Sizes(token[1 : token.rindex("/")]).total)
        elif key.isupper() and token in definitions and token not in inside and token != key:
            sizes.add(_lark_size(token, definitions, (*inside, key)))
        else:
            sizes.add(len(token))
        if sizes.total > MAX_EXPANSION:
            break
    return sizes.total
