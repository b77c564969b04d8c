"""Byte-level BPE: text as UTF-8 bytes spelled by printable characters, merged by rank. Owns that alphabet and the set-
up of the `tokenizers` library's merging; how text is cut into words is `pretokenizer.py`'s.
"""

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer as MergeTokenizer
from tokenizers.models import BPE

from twostroke.text.pretokenizer import PreTokenizerKind


class ByteLevelSegmenter:
    """Byte-level BPE over `tokens` without those in `literal_ids`, which are stored as they read.

    A byte for which the vocabulary has no token gives no id, as in the Hugging Face tokenizer.
    """

    strips_space = False

    def __init__(
        self,
        kind: PreTokenizerKind,
        tokens: Sequence[str],
        merges: list[tuple[str, str]],
        *,
        special_ids: Iterable[int],
        literal_ids: frozenset[int],
    ) -> None:
        self._tokens = tokens
        self._literal = literal_ids
        self._byte_values = byte_values()
        ids = dict(zip(tokens, range(len(tokens)), strict=True))
        for token_id in special_ids:  # no plain text can become a control token
            ids.pop(tokens[token_id], None)
        self._merger = MergeTokenizer(BPE(ids, merges, ignore_merges=kind.ignore_merges))
        self._merger.pre_tokenizer = kind.pre_tokenizer()
        if (normalizer := kind.normalizer()) is not None:
            self._merger.normalizer = normalizer

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """See `Segmenter`."""
        return self._merger.encode(text, add_special_tokens=False).ids

    def spell(self, token_id: int) -> bytes:
        """See `Segmenter`."""
        text = self._tokens[token_id]
        if token_id in self._literal:
            return text.encode("utf-8", errors="replace")
        return spell_byte_level(text, self._byte_values)


def byte_values() -> dict[str, int]:
    """Byte-level BPE's alphabet: printable Latin-1 characters stand for themselves, the other bytes, in order, for
    the characters from U+0100 on (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def spell_byte_level(text: str, values: dict[str, int]) -> bytes:
    """The bytes of a token; one with characters outside the alphabet is stored as it reads."""
    try:
        return bytes([values[char] for char in text])
    except KeyError:
        return text.encode("utf-8", errors="replace")
