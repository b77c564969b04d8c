"""ParsedAnswer: an answer's tokens as reasoning, content and calls. Owns stop strings in the content, and which tokens
count; reading is the text floor's.
"""

from twostroke.engine.events import NewToken
from twostroke.llm.answer_text import PlacedToken
from twostroke.llm.stop import StopStrings
from twostroke.text.answer.events import AnswerEvent, Content
from twostroke.text.answer_reader import AnswerReader


class ParsedAnswer:
    """What `AnswerText` is for an answer of text alone. Stop strings are looked for in the content only: in reasoning
    and arguments they are just text. Not for several threads at once."""

    def __init__(self, reader: AnswerReader, vocab_size: int, stops: StopStrings) -> None:
        self._reader = reader
        self._vocab_size = vocab_size
        self._stops = stops
        self._num_taken = 0
        self.num_reasoning = 0
        self.tokens: list[NewToken] = []

    @property
    def is_stopped(self) -> bool:
        """A stop string is complete: nothing more comes."""
        return self._stops.is_stopped

    @property
    def stop_found(self) -> str | None:
        """The stop string that ended the content, if one did."""
        return self._stops.found

    @property
    def num_calls(self) -> int:
        """Tool calls begun so far."""
        return self._reader.num_calls

    def push(self, token: NewToken) -> list[AnswerEvent]:
        """What is certain with this token. After a stop string tokens are of no account."""
        if self.is_stopped:
            return []
        self.tokens.append(token)
        self.num_reasoning += self._reader.is_reasoning
        if token.token_id >= self._vocab_size:  # rows above are padding of the embedding table
            return []
        return self._released(self._reader.push(token.token_id))

    def flush(self) -> list[AnswerEvent]:
        """What was held, once no more tokens come."""
        if self.is_stopped:
            return []
        return [*self._released(self._reader.finish()), *self._held()]

    def take_placed(self, is_last: bool = False) -> list[PlacedToken]:
        """Tokens not taken yet: all of them, whatever they are part of."""
        taken = self.tokens[self._num_taken :]
        self._num_taken = len(self.tokens)
        return [PlacedToken(token, 0) for token in taken]

    def _released(self, events: list[AnswerEvent]) -> list[AnswerEvent]:
        released: list[AnswerEvent] = []
        for event in events:
            if self.is_stopped:
                break
            if isinstance(event, Content):
                if text := self._stops.push(event.text):
                    released.append(Content(text))
            else:
                released += [*self._held(), event]
        return released

    def _held(self) -> list[AnswerEvent]:
        text = self._stops.flush()
        return [Content(text)] if text else []
