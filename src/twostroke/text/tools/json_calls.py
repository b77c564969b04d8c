"""Calls written as JSON objects, `{"name": ..., "arguments": {...}}`, alone, one after the other, or in a list. Owns
the keys and the order they come in; marks around them are the parser's.
"""

import json
from collections.abc import Collection
from typing import Literal

from twostroke.text.answer.marks import Mark, Piece
from twostroke.text.tools.json_value import JsonValue
from twostroke.text.tools.steps import Argued, Ended, Named, NotACall, Step

_NAMES = ("name", "tool_name")
_ARGUMENTS = ("arguments", "parameters")
_OTHERS = ("id", "type", "tool_call_id")
MAX_NAME = 256


class JsonCalls:
    """Reads such calls. With `known`, one to any other name is no call, nor an object with other keys or without
    arguments: for answers in which JSON may be just an answer.

    Arguments are passed on as they are written once the name is known; those before it wait. Arguments that are a
    string of JSON become that JSON.
    """

    def __init__(self, known: Collection[str] | None = None) -> None:
        self._known = known
        self._place: Literal["between", "key", "colon", "value", "next"] = "between"
        self._is_list = False
        self._num_named = 0
        self._num_doubled = 0  # braces: some templates show calls in {{ }}, and models then write them so
        self._steps: list[Step] = []
        self.rest: str | None = None
        self._reset()

    @property
    def is_inside(self) -> bool:
        return self._value is not None and self._value.is_in_string

    def push(self, piece: Piece) -> list[Step]:
        text = piece.text if isinstance(piece, Mark) else piece
        self._steps = []
        for index, char in enumerate(text):
            if self.rest is not None:
                self.rest = text[index:]
                break
            self._take(char)
        self._pass_on()
        return self._steps

    def _reset(self) -> None:
        self._key = ""
        self._name: str | None = None
        self._arguments: str | None = None  # those seen before the name
        self._value: JsonValue | None = None
        self._written = ""  # of the value being read
        self._is_named = False
        self._has_passed = False
        self._has_ended = False

    def _take(self, char: str) -> None:
        if self._value is not None:
            self._take_value(self._value, char)
        elif char.isspace():
            return
        elif self._place == "between":
            self._take_between(char)
        elif self._place == "key":
            self._take_key(char)
        elif self._place == "colon":
            self._place = "value" if char == ":" else self._odd("colon")
        elif self._place == "value":
            self._begin_value(char)
        elif char == "}":
            self._close()
        else:
            self._place = "key" if char == "," else self._odd("next")

    def _take_between(self, char: str) -> None:
        if char == "{":
            self._place = "key"
            self._num_doubled = 0
            self._reset()
        elif char == "}" and self._num_doubled:
            self._num_doubled -= 1
        elif char == "[" and not self._is_list and not self._num_named:
            self._is_list = True
        elif char == "]" and self._is_list and self._num_named:
            self.rest = ""
        elif not (char in ",;" and self._num_named):
            if not self._num_named:
                raise NotACall
            self.rest = char

    def _take_key(self, char: str) -> None:
        if char == '"':
            self._begin_value(char)
        elif char == "}":
            self._close()
        elif char == "{" and not self._key and not self._num_doubled:
            self._num_doubled = 1
        else:
            self._odd("key")

    def _begin_value(self, char: str) -> None:
        self._value, self._written, self._has_passed = JsonValue(), "", False
        self._take_value(self._value, char)

    def _take_value(self, value: JsonValue, char: str) -> None:
        end = value.take(char)
        if end != "past":
            self._written += char
        if len(self._written) > MAX_NAME and (self._place == "key" or self._key in _NAMES):
            self._give_up()
        if end == "more":
            return
        self._end_value()
        if end == "past":
            self._take(char)

    def _end_value(self) -> None:
        is_key = self._place == "key"
        if not is_key and self._key in _ARGUMENTS:
            self._end_arguments()
        else:
            text = self._decoded()
            if is_key:
                self._set_key(text)
            elif self._key in _NAMES and self._name is None:
                self._set_name(text)
        self._value, self._written = None, ""
        self._place = "colon" if is_key else "next"

    def _decoded(self) -> str | None:
        try:
            value = json.loads(self._written, strict=False)
        except ValueError:
            return None
        return value if isinstance(value, str) else None

    def _set_key(self, text: str | None) -> None:
        self._key = text or ""
        if self._key in _ARGUMENTS and self._name is not None and not self._is_named:
            self._say_name(self._name)
        if self._known is not None and self._key not in (*_NAMES, *_ARGUMENTS, *_OTHERS):
            self._give_up()

    def _set_name(self, name: str | None) -> None:
        if not name or (self._known is not None and name not in self._known):
            self._give_up()
            return
        self._name = name
        if self._known is None or self._arguments is not None:
            self._say_name(name)
        if self._arguments is not None:
            self._steps += [Argued(self._arguments), Ended()]
            self._has_ended = True

    def _say_name(self, name: str) -> None:
        self._is_named = True
        self._num_named += 1
        self._steps.append(Named(name))

    def _end_arguments(self) -> None:
        if self._has_ended or self._arguments is not None:
            return  # a second value under this key
        written = self._written if self._has_passed else _unwrapped(self._written)
        if self._name is None:
            self._arguments = written
            return
        self._steps += [Argued(written), Ended()] if written else [Ended()]
        self._has_ended = True
        self._written = ""

    def _pass_on(self) -> None:
        """Passes on what is known of the arguments, unless they may yet have to change."""
        if self._value is None or self._place != "value" or self._key not in _ARGUMENTS or self._name is None:
            return
        if self._written and (self._has_passed or self._written[0] in "{[") and not self._has_ended:
            self._steps.append(Argued(self._written))
            self._written, self._has_passed = "", True

    def _close(self) -> None:
        if not self._is_named:
            self._give_up()
        elif not self._has_ended:
            self._steps += [Argued("{}"), Ended()]
        self._place = "between"
        self._name, self._value = None, None
        self._key = ""

    def _odd(self, place: Literal["colon", "key", "next"]) -> Literal["colon", "key", "next"]:
        """A character that is no JSON is passed over."""
        self._give_up()
        return place

    def _give_up(self) -> None:
        """This is no call, unless one has been named."""
        if not self._num_named:
            raise NotACall


def _unwrapped(written: str) -> str:
    """Arguments as JSON of an object, where they are a string of that or nothing."""
    if written in ("", "null"):
        return "{}"
    try:
        inner = json.loads(written) if written[0] == '"' else None
        return inner if isinstance(inner, str) and isinstance(json.loads(inner), dict) else written
    except ValueError:
        return written
