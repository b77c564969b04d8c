"""AnswerReader: the ids of one answer to reasoning, content and tool calls. Owns the order of its parts; what a text
means is theirs. A whole answer is read as a stream is, so both give the same.
"""

from collections.abc import Iterable

from twostroke.text.answer.events import AnswerEvent, Content, Reasoning, merged
from twostroke.text.answer.harmony import HarmonyReader
from twostroke.text.answer.marks import MarkedText, Piece
from twostroke.text.answer.reasoning import Channel, ReasoningSplitter
from twostroke.text.answer_format import AnswerFormat
from twostroke.text.tokenizer import Tokenizer
from twostroke.text.tools.call_parser import CallParser, new_call_id
from twostroke.text.tools.tool_format import Schemas


class AnswerReader:
    """Reads one answer. Not for several threads at once.

    `prompt` is the text that was rendered: it tells whether the template opened the reasoning. `schemas` has the
    parameters' JSON schemas of the tools the model may call; without any, calls are not looked for. `continues` says
    that the answer goes on with a message of the prompt.
    """

    def __init__(
        self,
        form: AnswerFormat,
        tokenizer: Tokenizer,
        *,
        prompt: str = "",
        schemas: Schemas | None = None,
        continues: bool = False,
    ) -> None:
        marks = form.marks if schemas or form.is_harmony else form.marks - form.tools.marks
        self._text = MarkedText(tokenizer, marks, continues=continues)
        self._calls = CallParser(form.tools, schemas) if schemas and not form.is_harmony else None
        self._harmony = HarmonyReader(new_call_id) if form.is_harmony else None
        is_open = form.reasoning is not None and form.reasoning.are_open(prompt)
        self._splitter = ReasoningSplitter(form.reasoning, is_open=is_open)

    @property
    def num_calls(self) -> int:
        """Tool calls begun so far."""
        reader = self._harmony or self._calls
        return 0 if reader is None else reader.num_calls

    @property
    def is_reasoning(self) -> bool:
        """What comes next is reasoning, unless it ends that."""
        return self._harmony.is_reasoning if self._harmony is not None else self._splitter.is_reasoning

    def push(self, token_id: int) -> list[AnswerEvent]:
        """What is certain with one more id. Raises InvalidRequestError for an id outside the vocabulary."""
        return self._read(self._text.push(token_id))

    def finish(self) -> list[AnswerEvent]:
        """What was still held, once the answer has ended."""
        events = self._read(self._text.finish())
        if self._harmony is not None:
            return merged(events + self._harmony.finish())
        events += self._channels(self._splitter.finish())
        return merged(events + (self._calls.finish() if self._calls is not None else []))

    def _read(self, pieces: Iterable[Piece]) -> list[AnswerEvent]:
        events: list[AnswerEvent] = []
        for piece in pieces:
            if self._harmony is not None:
                events += self._harmony.push(piece)
            else:
                events += self._channels(self._splitter.push(piece))
        return merged(events)

    def _channels(self, pieces: Iterable[tuple[Channel, Piece]]) -> list[AnswerEvent]:
        events: list[AnswerEvent] = []
        for channel, piece in pieces:
            if channel == "content" and self._calls is not None:
                events += self._calls.push(piece)
                continue
            text = piece if isinstance(piece, str) else piece.visible
            if text:
                events.append(Reasoning(text) if channel == "reasoning" else Content(text))
        return events
