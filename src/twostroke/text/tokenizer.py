"""Text to token ids and back. Owns a model's tokenizer: which texts are special, when BOS is added, what bytes an id
stands for. Merging is done by the `tokenizers` library; reading and checking the file's keys by `vocabulary.py`.
"""

import re
from collections.abc import Iterable, Mapping

from tokenizers import Tokenizer as MergeTokenizer
from tokenizers.models import BPE

from twostroke.errors import InvalidRequestError
from twostroke.text.vocabulary import Vocabulary


class Tokenizer:
    """A byte-level BPE tokenizer, exact to the Hugging Face tokenizer of the same model. Immutable; safe to share
    between threads.

    Control tokens never come out of plain text: `encode` cuts their text into ordinary tokens unless asked to parse
    it. User-defined tokens are always one id. A byte for which the vocabulary has no token gives no id, as in
    the Hugging Face tokenizer.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tokens = vocabulary.tokens
        self._special = vocabulary.special_ids
        self._literal = vocabulary.special_ids | vocabulary.atomic_ids  # stored as they read, not byte-spelled
        self._literal_ids = {self._tokens[token_id]: token_id for token_id in self._literal if self._tokens[token_id]}
        self._atomic_pattern = _any_of(self._tokens[token_id] for token_id in vocabulary.atomic_ids)
        self._special_pattern = _any_of(self._literal_ids)
        self._merger = _merger(vocabulary)
        self._byte_values = _byte_values()

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> "Tokenizer":
        """Builds from a GGUF file's metadata (`tokenizer.ggml.*`).

        Raises ModelFileError naming a key that is missing or malformed; UnsupportedModelError naming a tokenizer or
        pre-tokenizer kind that is not byte-level BPE of a known family.
        """
        return cls(Vocabulary.from_gguf(metadata))

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
        text = self.token_text(token_id)
        if token_id in self._vocabulary.unused_ids:
            return b""
        if token_id not in self._literal:
            try:
                return bytes([self._byte_values[char] for char in text])
            except KeyError:  # a token with characters outside the byte alphabet is stored as it reads
                pass
        return text.encode("utf-8", errors="replace")

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Ids of `text`, with BOS before them when `add_special` and the model wants it.

        With `parse_special` the text of a control token is that token, and a leading BOS text is not doubled.
        Raises InvalidRequestError for a lone surrogate.
        """
        _check_encodable(text)
        ids = self._encode_parts(text, self._special_pattern if parse_special else self._atomic_pattern)
        bos_id = self.bos_id
        if add_special and self.add_bos and bos_id is not None and not (parse_special and ids[:1] == [bos_id]):
            ids.insert(0, bos_id)
        return ids

    def split_special(self, text: str) -> list[int | str]:
        """`text` cut at every control or user-defined token: ids for those, strings for what is between. Encoding the
        strings and joining gives `encode(text, add_special=False, parse_special=True)`."""
        parts: list[int | str] = []
        for index, part in enumerate(self._special_pattern.split(text)):
            if index % 2:
                parts.append(self._literal_ids[part])
            elif part:
                parts.append(part)
        return parts

    def control_texts(self) -> list[str]:
        """The texts of all control tokens, which must not be parsed in what a user wrote."""
        return [text for text, token_id in self._literal_ids.items() if token_id in self._special]

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of `ids`; bytes that are not UTF-8 become U+FFFD. Raises InvalidRequestError for an invalid id."""
        pieces = (self.token_bytes(token_id) for token_id in ids if not (skip_special and self.is_special(token_id)))
        return b"".join(pieces).decode("utf-8", errors="replace")

    def _encode_parts(self, text: str, pattern: re.Pattern[str]) -> list[int]:
        ids: list[int] = []
        for index, part in enumerate(pattern.split(text)):
            if index % 2:
                ids.append(self._literal_ids[part])
            elif part:
                ids += self._merger.encode(part, add_special_tokens=False).ids
        return ids

    def _checked(self, token_id: int) -> int:
        if not 0 <= token_id < len(self._tokens):
            raise InvalidRequestError(f"token id {token_id} is outside the vocabulary of {len(self._tokens)} tokens")
        return token_id


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Captures any of `texts`, the leftmost and then the longest; never matches when there are none."""
    alternatives = sorted((text for text in texts if text), key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, alternatives))})" if alternatives else "((?!))")


def _merger(vocabulary: Vocabulary) -> MergeTokenizer:
    """The library's tokenizer over ordinary tokens only, so that no plain text can become a control token."""
    ids = dict(zip(vocabulary.tokens, range(len(vocabulary.tokens)), strict=True))
    for token_id in vocabulary.special_ids:
        del ids[vocabulary.tokens[token_id]]
    merger = MergeTokenizer(BPE(ids, vocabulary.merges, ignore_merges=vocabulary.kind.ignore_merges))
    merger.pre_tokenizer = vocabulary.kind.pre_tokenizer()
    if (normalizer := vocabulary.kind.normalizer()) is not None:
        merger.normalizer = normalizer
    return merger


def _byte_values() -> dict[str, int]:
    """Byte-level BPE's alphabet: printable Latin-1 characters stand for themselves, the other bytes, in order, for
    the characters from U+0100 on (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _check_encodable(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise InvalidRequestError(f"the text has a lone surrogate U+{code:04X} at position {error.start}") from None
