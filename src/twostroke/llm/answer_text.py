"""AnswerText: an answer as text, piece by piece. Owns which text, and which tokens, certainly belong to it."""

from typing import NamedTuple

from twostroke.engine.events import NewToken
from twostroke.llm.stop import StopStrings
from twostroke.text.detokenizer import Detokenizer
from twostroke.text.tokenizer import Tokenizer


class PlacedToken(NamedTuple):
    """A token and where its text begins: characters of the answer before it."""

    token: NewToken
    start: int


class AnswerText:
    """Takes the tokens of one answer in their order. Pieces never end inside a character, and hold back what may yet be
    a stop string; they do not depend on how tokens cut the text. Not for several threads at once.

    With `continues` the text goes on after a prompt that is shown before it.
    """

    def __init__(self, tokenizer: Tokenizer, stops: StopStrings, *, continues: bool = False) -> None:
        self._vocab_size = tokenizer.vocab_size
        self._detokenizer = Detokenizer(tokenizer, continues=continues)
        self._stops = stops
        self._num_decoded = self._num_released = 0
        self._placed: list[PlacedToken] = []
        self.tokens: list[NewToken] = []

    @property
    def is_stopped(self) -> bool:
        """A stop string is complete: no more text comes."""
        return self._stops.is_stopped

    @property
    def stop_found(self) -> str | None:
        """The stop string that ended the text, if one did."""
        return self._stops.found

    def push(self, token: NewToken) -> str:
        """The text that is certain with this token, often empty. After a stop string tokens are of no account."""
        if self._stops.is_stopped:
            return ""
        self.tokens.append(token)
        self._placed.append(PlacedToken(token, self._num_decoded))
        if token.token_id >= self._vocab_size:  # rows above are padding of the embedding table
            return ""
        return self._release(self._detokenizer.push(token.token_id))

    def flush(self) -> str:
        """What was held, once no more tokens come."""
        if self._stops.is_stopped:
            return ""
        piece = self._release(self._detokenizer.flush())
        held = self._stops.flush()
        self._num_released += len(held)
        return piece + held

    def take_placed(self, is_last: bool = False) -> list[PlacedToken]:
        """Tokens not taken yet whose text is released, or begins to be; with `is_last` all that there are. Those
        that begin in a stop string which is left out are never among them."""
        keep_all = is_last and not self.is_stopped
        count = sum(1 for placed in self._placed if keep_all or placed.start < self._num_released)
        taken, self._placed = self._placed[:count], self._placed[count:]
        return taken

    def _release(self, decoded: str) -> str:
        self._num_decoded += len(decoded)
        piece = self._stops.push(decoded)
        self._num_released += len(piece)
        return piece
