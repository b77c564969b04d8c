"""Token ids to text as they arrive. Owns the bytes of a character not complete yet; the vocabulary is the
tokenizer's.
"""

import codecs

from twostroke.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns one stream of ids into pieces of text whose join equals `tokenizer.decode` of all the ids.

    A piece never ends inside a character: its bytes are held until it is complete, or proves invalid and becomes
    U+FFFD. With `continues` the text goes on after another, and the space that `decode` drops at a text's start is
    kept. One object a stream; not for several threads at once.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True, *, continues: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._strips_space = tokenizer.strips_space and not continues
        self._at_start = self._strips_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes, often empty. Raises InvalidRequestError for an unknown id."""
        if self._skip_special and self._tokenizer.is_special(token_id):
            return ""
        return self._stripped(self._decoder.decode(self._tokenizer.token_bytes(token_id)))

    def flush(self) -> str:
        """What is still held at the end of the stream, as U+FFFD; the object is then ready for another stream."""
        piece = self._stripped(self._decoder.decode(b"", final=True))
        self._decoder.reset()
        self._at_start = self._strips_space
        return piece

    def _stripped(self, piece: str) -> str:
        if self._at_start and piece:
            self._at_start = False
            return piece.removeprefix(" ")
        return piece
