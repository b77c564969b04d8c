"""CallParser: an answer's content to text and tool calls, in one model's format. Owns where calls begin and end, and
what happens to a text that only looked like one; reading a call is its reader's.
"""

import re
from collections.abc import Callable
from secrets import choice
from string import ascii_letters, digits, whitespace

from twostroke.text.answer.events import AnswerEvent, CallArguments, CallEnded, CallStarted, Content
from twostroke.text.answer.marks import Mark, Piece
from twostroke.text.tools.json_calls import JsonCalls
from twostroke.text.tools.steps import Argued, CallReader, Named, NotACall, Step
from twostroke.text.tools.tagged_calls import TaggedCalls
from twostroke.text.tools.tool_format import Schemas, ToolFormat

_OPENING = re.compile(r"\s*(?:```(?:json)?\s*)?(?=[{\[])")  # of JSON that is all of an answer
_MAY_OPEN = re.compile(r"\s*(?:`{0,2}|```(?:j|js|jso|json)?\s*)")


def new_call_id(num_letters: int | None = None) -> str:
    """A call's id that no one can guess: `call_` and 24 letters, or only as many letters as a template allows."""
    prefix, count = ("call_", 24) if num_letters is None else ("", num_letters)
    return prefix + "".join(choice(ascii_letters + digits) for _ in range(count))


class CallParser:
    """Parses one answer. White space next to a call belongs to neither; a text that begins like a call and is none
    comes out as it was."""

    def __init__(self, form: ToolFormat, schemas: Schemas, new_id: Callable[[int | None], str] = new_call_id) -> None:
        self._form = form
        self._schemas = schemas
        self._new_id = new_id
        self._readers: list[CallReader] = []  # the one in use, and those to be tried after it
        self._read: list[Piece] = []  # what it has been given, until a call is named
        self._is_closing = False  # after a call, before the mark that ends it
        self._is_fenced = form.is_fenced
        self._has_content = False
        self._blanks = ""
        self.num_calls = 0

    def push(self, piece: Piece) -> list[AnswerEvent]:
        if self._readers:
            return self._push_call(piece)
        if isinstance(piece, Mark):
            return self._push_mark(piece)
        return self._push_text(piece)

    def finish(self) -> list[AnswerEvent]:
        """The answer ends here: a call that is not complete stays so; what is none is content."""
        events = self._leave() if self._readers else []
        blanks, self._blanks = self._blanks, ""
        if blanks and not self.num_calls:
            events.append(Content(blanks))
        return events

    def _push_mark(self, mark: Mark) -> list[AnswerEvent]:
        if mark.text in self._form.begins:
            return self._enter(mark, self._form.readers(self._schemas))
        if mark.text in self._form.passed or (self._is_closing and mark.text in self._form.ends):
            self._is_closing = False
            return []
        return self._push_text(mark.visible)

    def _push_text(self, text: str) -> list[AnswerEvent]:
        if self._is_closing:
            text = text.lstrip("`" + whitespace) if self._is_fenced else text.lstrip()
        text = self._blanks + text
        if self._form.is_bare and not self._has_content:
            if (opening := _OPENING.match(text)) is not None:
                return self._enter_bare(text[: opening.end()], text[opening.end() :])
            if _MAY_OPEN.fullmatch(text):
                self._blanks = text
                return []
        kept = text.rstrip()
        self._blanks = text[len(kept) :]
        if not kept:
            return []
        if self.num_calls and not self._has_content:
            kept = kept.lstrip()
        self._is_closing = False
        self._has_content = True
        return [Content(kept)]

    def _enter(self, begin: Piece, readers: list[CallReader]) -> list[AnswerEvent]:
        self._readers, self._read = readers, [begin]
        return []

    def _enter_bare(self, opening: str, text: str) -> list[AnswerEvent]:
        """JSON that may be a call, after blanks or the beginning of a fence."""
        self._blanks = ""
        self._is_fenced = self._form.is_fenced or "`" in opening
        self._enter(opening, [JsonCalls(frozenset(self._schemas))])
        return self.push(text)

    def _push_call(self, piece: Piece) -> list[AnswerEvent]:
        reader = self._readers[0]
        if isinstance(piece, Mark) and not reader.is_inside:
            if piece.text in self._form.ends:
                return self._leave(piece)
            if piece.text in self._form.begins or piece.text in self._form.passed:
                return [*self._leave(), *self.push(piece)]
        if self._read:
            self._read.append(piece)
        try:
            return self._took(reader.push(piece))
        except NotACall:
            return self._retry()

    def _took(self, steps: list[Step]) -> list[AnswerEvent]:
        events: list[AnswerEvent] = []
        for step in steps:
            if isinstance(step, Named):
                self._read, self._blanks = [], ""
                events.append(CallStarted(self.num_calls, self._new_id(self._form.num_id), step.name))
                self.num_calls += 1
            elif isinstance(step, Argued):
                events.append(CallArguments(self.num_calls - 1, step.text))
            else:
                events.append(CallEnded(self.num_calls - 1))
        if (rest := self._readers[0].rest) is not None:
            self._readers, self._is_closing = [], True
            events += self.push(rest) if rest else []
        return events

    def _retry(self) -> list[AnswerEvent]:
        """The reader has found no call: the next one tries, or the text is content."""
        read, self._read = self._read, []
        self._readers = self._readers[1:]
        if self._readers:
            self._read = read[:1]
            return [event for piece in read[1:] for event in self.push(piece)]
        return self._as_content(read)

    def _as_content(self, read: list[Piece]) -> list[AnswerEvent]:
        begin, *others = read
        text = self._blanks + (begin.visible if isinstance(begin, Mark) else begin)
        self._blanks = ""
        self._has_content = True
        events: list[AnswerEvent] = [Content(text)] if text else []
        return events + [event for piece in others for event in self.push(piece)]

    def _leave(self, end: Mark | None = None) -> list[AnswerEvent]:
        """The call has come to its end mark, or the answer to its end."""
        reader = self._readers[0]
        events = self._took(reader.finish()) if isinstance(reader, TaggedCalls) and end is not None else []
        read = self._read
        self._readers, self._read = [], []
        self._is_closing = False
        if not read:
            return events
        return self._as_content(read if end is None else [*read, end])
