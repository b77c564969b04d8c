"""Grammar: a language that an answer is held to. Owns the kinds there are, their sizes and how texts are spelled in
them; compiling is `compiler.py`'s.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from twostroke.errors import InvalidRequestError
from twostroke.text.grammar.expansion import check_lark, check_pattern
from twostroke.text.grammar.json_schema import checked_schema, schema_text

MAX_GRAMMAR_BYTES = 64 * 1024
_SIGNS = frozenset(r"\.+*?()|[]{}^$#&-~/")  # those with a meaning in a regular expression, and what ends one in Lark


@dataclass(frozen=True, slots=True)
class Grammar:
    """One language, as text: `lark` in llguidance's dialect of Lark, or a `regex` in the syntax of Rust's regex crate.

    `name` is the request's field it came from, for messages. `before` is Lark with a rule of that name: what comes
    before the text. Equal grammars compile once.
    """

    kind: Literal["lark", "regex"]
    text: str
    name: str
    before: str = ""

    @classmethod
    def json_object(cls, name: str = "response_format") -> "Grammar":
        """Any JSON object, white space bounded."""
        return cls.json_schema({"type": "object"}, name)

    @classmethod
    def json_schema(cls, schema: object, name: str = "response_format.json_schema.schema") -> "Grammar":
        """JSON that a schema describes. Raises InvalidRequestError naming a keyword that cannot be enforced."""
        return cls("lark", f"start: {json_rule(checked_schema(schema, name))}\n", name)

    @classmethod
    def regex(cls, pattern: str, name: str = "regex") -> "Grammar":
        """Texts that a regular expression matches as a whole."""
        check_pattern(_bounded(pattern, name), name)
        return cls("regex", pattern, name)

    @classmethod
    def lark(cls, text: str, name: str = "grammar") -> "Grammar":
        """Texts of a grammar in llguidance's Lark, which begins at the rule `start`."""
        if not re.search(r"^\s*start\s*:", text, re.MULTILINE):
            raise InvalidRequestError(f"{name}: a grammar begins at a rule named start")
        check_lark(_bounded(text, name), name)
        for match in re.finditer(r"%json\b\s*", text):
            checked_schema(_json_at(text, match.end(), name), name)
        return cls("lark", text, name)


def json_rule(schema: dict[str, object]) -> str:
    """Lark for the JSON that a checked schema describes."""
    return f"%json {schema_text(schema)}"


def literal(text: str) -> str:
    """Lark for a text as it reads."""
    return json.dumps(text, ensure_ascii=False)


class Spelling:
    """How texts are written in Lark for one vocabulary: marks that are one token there as that token, as nothing else
    spells them. Immutable."""

    def __init__(self, mark_ids: Mapping[int, str]) -> None:
        self._ids = {text: token_id for token_id, text in mark_ids.items()}
        alternatives = "|".join(map(re.escape, sorted(self._ids, key=len, reverse=True))) or "(?!)"
        self._marks = re.compile(f"({alternatives})")

    def of(self, text: str) -> str:
        """Lark for `text`; nothing for nothing."""
        parts = self._marks.split(text)
        return " ".join(
            f"<[{self._ids[part]}]>" if index % 2 else literal(part) for index, part in enumerate(parts) if part
        )

    def text_until(self, rule: str, end: str) -> list[str]:
        """Rules, the first named `rule`, for any text up to and with `end`, which it does not have before."""
        first, *others = self._marks.split(end)
        if first:
            rest = self.of(end[len(first) :])
            lazy = [f"{rule}_text[lazy]: /(.|\\n)*{_escaped(first)}/"]
            return [f"{rule}: {rule}_text {rest}", *lazy]
        return [f"{rule}: {rule.upper()}_TEXT {self.of(''.join(others))}", f"{rule.upper()}_TEXT: /(.|\\n)*/"]

    def text_without(self, rule: str, begins: Iterable[str], first: str = "") -> str:
        """A rule for any text in which no mark begins; `first` is a regular expression for how it begins."""
        spelled = [_escaped(begin) for begin in begins if begin not in self._ids]
        kept = f"{rule.upper()}_TEXT: /{first}(.|\\n)*/"
        without = f" & ~/(.|\\n)*({'|'.join(spelled)})(.|\\n)*/" if spelled else ""
        return f"{rule}: {rule.upper()}_TEXT\n{kept}{without}"


def _escaped(text: str) -> str:
    """A text as it reads, in a regular expression of Lark."""
    return "".join("\\n" if char == "\n" else f"\\{char}" if char in _SIGNS else char for char in text)


def _json_at(text: str, position: int, name: str) -> object:
    try:
        return json.JSONDecoder().raw_decode(text, position)[0]
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{name}: no JSON after %json: {error}") from None


def _bounded(text: str, name: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if not text:
        raise InvalidRequestError(f"{name} is empty")
    if size > MAX_GRAMMAR_BYTES:
        raise InvalidRequestError(f"{name} has {size} bytes; at most {MAX_GRAMMAR_BYTES}")
    return text
