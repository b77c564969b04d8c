"""How text is cut into words before byte-pair merging. Owns the table of `tokenizer.ggml.pre` kinds and their regular
expressions; knows no vocabulary and no special tokens.

Each kind is built from the same parts, with the same parameters, as the `tokenizer.json` of its family, so ids agree
with the Hugging Face tokenizer. A kind that is not in the table is refused by name: a guess would give wrong ids in
silence.
"""

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from twostroke.errors import UnsupportedModelError

_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# What GGUF's `default` stands for: punctuation runs apart, then words, then digits in runs and in threes.
_DEFAULT_SPLITS = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2_WORDS, r"\p{N}+", r"[0-9][0-9][0-9]")


@dataclass(frozen=True)
class PreTokenizerKind:
    """One way of cutting text.

    `splits` are applied in order, each to every piece the one before left; a match is a piece of its own. `nfc` is
    the family's normaliser, `ignore_merges` takes a whole word found in the vocabulary without merging, `adds_bos` is
    whether BOS is added when the file has no `add_bos_token`.
    """

    splits: tuple[str, ...]
    single_digits: bool = False
    nfc: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """The splits, then bytes spelled as printable characters."""
        steps: list[pre_tokenizers.PreTokenizer] = []
        if self.single_digits:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        steps += [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in self.splits]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(steps)

    def normalizer(self) -> normalizers.Normalizer | None:
        """The normaliser run on plain text before it is cut, if the family has one."""
        return normalizers.NFC() if self.nfc else None


_GPT2 = PreTokenizerKind((_GPT2_WORDS,))
_SMOLLM = PreTokenizerKind((_GPT2_WORDS,), single_digits=True)
_LLAMA3 = PreTokenizerKind((_LLAMA3_WORDS,), ignore_merges=True, adds_bos=True)
_QWEN2 = PreTokenizerKind((_QWEN2_WORDS,), nfc=True)

PRE_TOKENIZER_KINDS = {
    "default": PreTokenizerKind(_DEFAULT_SPLITS),
    "gpt-2": _GPT2,
    "smollm": _SMOLLM,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}


def pre_tokenizer_kind(name: str) -> PreTokenizerKind:
    """The kind of that `tokenizer.ggml.pre` name. Raises UnsupportedModelError, with the known names."""
    if name not in PRE_TOKENIZER_KINDS:
        known = ", ".join(PRE_TOKENIZER_KINDS)
        raise UnsupportedModelError(f"tokenizer.ggml.pre: kind {name!r} is not supported (supported: {known})")
    return PRE_TOKENIZER_KINDS[name]
