"""One JSON value as it arrives. Owns where it ends; whether it is valid is its reader's to find out."""

from typing import Literal

End = Literal["more", "last", "past"]


class JsonValue:
    """Takes characters from a value's first on, without white space before it."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_escaped = False
        self.is_in_string = False

    def take(self, char: str) -> End:
        """Whether the value goes on after `char`, ends with it, or has ended before it (a number or a word)."""
        if self.is_in_string:
            return self._in_string(char)
        if char == '"':
            self.is_in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            if self._depth <= 0:
                return "last" if self._depth == 0 else "past"
        elif self._depth == 0 and (char in ",;" or char.isspace()):
            return "past"
        return "more"

    def _in_string(self, char: str) -> End:
        if self._is_escaped:
            self._is_escaped = False
        elif char == "\\":
            self._is_escaped = True
        elif char == '"':
            self.is_in_string = False
            return "more" if self._depth else "last"
        return "more"
