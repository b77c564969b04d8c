"""Calls with their name before the JSON of their arguments: `name[ARGS]{...}` and its kin. Owns the two parts; the
form of what stands before the brace is given.
"""

import re
from typing import Literal

from twostroke.text.answer.marks import Mark, Piece
from twostroke.text.tools.json_value import JsonValue
from twostroke.text.tools.steps import Argued, Ended, Named, NotACall, Step

MAX_HEADER = 320


class HeadedCalls:
    """Reads one such call. `header` matches all before the first brace and captures `name`."""

    def __init__(self, header: str) -> None:
        self._pattern = re.compile(header)
        self._header = ""
        self._value = JsonValue()
        self._place: Literal["header", "arguments", "after"] = "header"
        self.rest: str | None = None

    @property
    def is_inside(self) -> bool:
        return self._value.is_in_string

    def push(self, piece: Piece) -> list[Step]:
        text = piece.text if isinstance(piece, Mark) else piece
        steps: list[Step] = []
        if self._place == "header":
            before, brace, text = text.partition("{")
            self._header += before
            if len(self._header) > MAX_HEADER:
                raise NotACall
            if not brace:
                return []
            match = self._pattern.fullmatch(self._header)
            if match is None:
                raise NotACall
            steps.append(Named(match["name"]))
            self._place, text = "arguments", brace + text
        return [*steps, *self._arguments(text)]

    def _arguments(self, text: str) -> list[Step]:
        if self._place == "after":
            self.rest = text
            return []
        for index, char in enumerate(text):
            if self._value.take(char) != "more":
                self._place, self.rest = "after", text[index + 1 :]
                return [Argued(text[: index + 1]), Ended()]
        return [Argued(text)] if text else []
