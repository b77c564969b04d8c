"""What every kind of vocabulary does with ordinary text. Owns the interface only; the kinds are `byte_level.py`,
`sentencepiece.py` and `huggingface.py`.
"""

from typing import Protocol


class Segmenter(Protocol):
    """Cuts text that has no added tokens into ids, and spells ids. Immutable; safe to share between threads."""

    @property
    def strips_space(self) -> bool:
        """Whether a decoded text loses one space at its start, because encoding puts one there."""

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """Ids of `text`, which is valid Unicode; never a control token. `is_first` says that nothing comes before
        it, not even an added token."""

    def spell(self, token_id: int) -> bytes:
        """The UTF-8 bytes, possibly part of a character, that an id of the vocabulary stands for."""
