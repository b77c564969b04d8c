"""A model's tokens, their roles and named ids, from whatever file. Owns the structure that every kind of vocabulary is
read into and which texts end an answer; reading is `gguf_vocabulary.py`'s and `huggingface.py`'s.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from twostroke.text.added_tokens import AddedToken
from twostroke.text.segmenter import Segmenter

# Control tokens that end a turn or a text in the families supported, whether or not a key names them.
_END_TEXTS = frozenset(
    {
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<｜end▁of▁sentence｜>",
        "<end_of_turn>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|END_OF_TURN_TOKEN|>",
    }
)


class Vocabulary(NamedTuple):
    """Checked content of a file's vocabulary.

    `tokens[token_id]` is the text as stored; `added` are control and user-defined tokens, found in a text as they
    read; `special_ids` are control and unknown tokens, hidden from a reader; `unused_ids` padding rows of the
    embedding. `make_segmenter` builds what cuts ordinary text: a vocabulary alone takes no time for it. `alike` is
    `AddedTokens`'.
    """

    tokens: Sequence[str]
    added: tuple[AddedToken, ...]
    special_ids: frozenset[int]
    unused_ids: frozenset[int]
    bos_id: int | None
    eos_ids: frozenset[int]
    add_bos: bool
    make_segmenter: Callable[[], Segmenter]
    alike: tuple[str, str] = ("", "")

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> "Vocabulary":
        """From a GGUF file's `tokenizer.ggml.*` keys. Raises ModelFileError naming the key that is missing, malformed
        or out of range; UnsupportedModelError naming the tokenizer or pre-tokenizer kind."""
        from twostroke.text.gguf_vocabulary import read_vocabulary  # it imports this module

        return read_vocabulary(metadata)

    @classmethod
    def from_hf(cls, source: str | Path | Mapping[str, str]) -> "Vocabulary":
        """From a Hugging Face directory, or its text files by name. Raises ModelFileError naming the file and field;
        UnsupportedModelError naming the kind of tokenizer."""
        from twostroke.text.huggingface import read_vocabulary  # it imports this module
        from twostroke.text.model_files import ModelFiles

        return read_vocabulary(ModelFiles(source))


def end_ids(tokens: Sequence[str], special_ids: Iterable[int], named: Iterable[int]) -> frozenset[int]:
    """Every id that ends an answer: those a file names, and control tokens that end a turn or text in their family.

    `<|end|>` ends only a message, not the answer, where answers end with `<|return|>`.
    """
    found = {tokens[token_id]: token_id for token_id in special_ids if tokens[token_id] in _END_TEXTS}
    if "<|return|>" in found:
        found.pop("<|end|>", None)
    return frozenset(named) | frozenset(found.values())
