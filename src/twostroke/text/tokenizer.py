"""Text to token ids and back. Owns what holds for every vocabulary: when control tokens are parsed, when BOS is added,
which ids are refused. Reading files is `gguf_vocabulary.py`'s and `huggingface.py`'s, cutting ordinary text the
segmenter's.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from twostroke.errors import InvalidRequestError
from twostroke.text.added_tokens import AddedTokens
from twostroke.text.vocabulary import Vocabulary


class Tokenizer:
    """A model's tokenizer, exact to the reference tokenizer of the same model. Immutable; safe to share between
    threads.

    Control tokens never come out of plain text: `encode` cuts their text into ordinary tokens unless asked to parse
    it. User-defined tokens are always one id.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tokens = vocabulary.tokens
        self._special = vocabulary.special_ids
        self._all_added = AddedTokens(vocabulary.added, vocabulary.alike)
        visible = [token for token in vocabulary.added if not token.special]
        self._visible_added = AddedTokens(visible, vocabulary.alike)
        self._segmenter = vocabulary.make_segmenter()

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> "Tokenizer":
        """Builds from a GGUF file's metadata (`tokenizer.ggml.*`).

        Raises ModelFileError naming a key that is missing or malformed; UnsupportedModelError naming a tokenizer or
        pre-tokenizer kind that is not supported.
        """
        return cls(Vocabulary.from_gguf(metadata))

    @classmethod
    def from_hf(cls, source: str | Path | Mapping[str, str]) -> "Tokenizer":
        """Builds from a Hugging Face directory, or from its text files by name: `tokenizer.json`, and what
        tokenizer_config.json, special_tokens_map.json, config.json and generation_config.json say of BOS and of ends.

        Raises ModelFileError naming the file and field that is missing or malformed; UnsupportedModelError naming a
        kind of tokenizer that is not supported.
        """
        return cls(Vocabulary.from_hf(source))

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self._tokens)

    @property
    def bos_id(self) -> int | None:
        """The begin-of-text id, if the model has one (whether or not it is added)."""
        return self._vocabulary.bos_id

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends an answer: end of text, of turn and of message."""
        return self._vocabulary.eos_ids

    @property
    def add_bos(self) -> bool:
        """Whether the model wants BOS before a text."""
        return self._vocabulary.add_bos

    @property
    def strips_space(self) -> bool:
        """Whether `decode` drops one space at the start of a text, because `encode` puts one there."""
        return self._segmenter.strips_space

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control token, hidden when decoding for a reader. Raises InvalidRequestError."""
        return self._checked(token_id) in self._special

    def token_text(self, token_id: int) -> str:
        """The token as the file stores it. Raises InvalidRequestError for an id outside the vocabulary."""
        return self._tokens[self._checked(token_id)]

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes the id stands for, possibly part of a character; empty for a padding row.

        Raises InvalidRequestError for an id outside the vocabulary.
        """
        if self._checked(token_id) in self._vocabulary.unused_ids:
            return b""
        return self._segmenter.spell(token_id)

    def encode(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Ids of `text` (bytes: UTF-8), with BOS before them when `add_special` and the model wants it.

        With `parse_special` the text of a control token is that token, and a leading BOS text is not doubled.
        Raises InvalidRequestError for a lone surrogate, or bytes that are not UTF-8.
        """
        text = _checked_text(text)
        ids = self.encode_parts(self._all_added.split(text) if parse_special else [text])
        bos_id = self.bos_id
        if add_special and self.add_bos and bos_id is not None and not (parse_special and ids[:1] == [bos_id]):
            ids.insert(0, bos_id)
        return ids

    def split_special(self, text: str) -> list[int | str]:
        """`text` cut at every control or user-defined token: ids for those, strings for what is between.
        `encode_parts` of it is `encode(text, add_special=False, parse_special=True)`."""
        return self._all_added.split(text)

    def encode_parts(self, parts: Iterable[int | str]) -> list[int]:
        """Ids of one text given in parts: an id stays, a string is plain text, without control tokens."""
        ids: list[int] = []
        for part in parts:
            for piece in [part] if isinstance(part, int) else self._visible_added.split(part):
                if isinstance(piece, int):
                    ids.append(piece)
                else:
                    ids += self._segmenter.encode(piece, is_first=not ids)
        return ids

    def control_texts(self) -> list[str]:
        """The texts of all control tokens, which must not be parsed in what a user wrote."""
        return [token.content for token in self._vocabulary.added if token.special and token.content]

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of `ids`; bytes that are not UTF-8 become U+FFFD. Raises InvalidRequestError for an invalid id."""
        pieces = (self.token_bytes(token_id) for token_id in ids if not (skip_special and self.is_special(token_id)))
        text = b"".join(pieces).decode("utf-8", errors="replace")
        return text.removeprefix(" ") if self.strips_space else text

    def _checked(self, token_id: int) -> int:
        if not 0 <= token_id < len(self._tokens):
            raise InvalidRequestError(f"token id {token_id} is outside the vocabulary of {len(self._tokens)} tokens")
        return token_id


def _checked_text(text: str | bytes) -> str:
    if isinstance(text, bytes):
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"the text is not UTF-8 at byte {error.start}") from None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise InvalidRequestError(f"the text has a lone surrogate U+{code:04X} at position {error.start}") from None
    return text
