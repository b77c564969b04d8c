"""How text is cut into words before byte-pair merging. Owns the table of `tokenizer.ggml.pre` kinds and their regular
expressions; knows no vocabulary and no special tokens.

Each kind is built from the same parts, with the same parameters, as the `tokenizer.json` of its family, so ids agree
with the Hugging Face tokenizer. A kind that is not in the table is refused by name: a guess would give wrong ids in
silence.
"""

from dataclasses import dataclass
from enum import Enum, auto

from tokenizers import Regex, normalizers, pre_tokenizers

from twostroke.errors import UnsupportedModelError


class Step(Enum):
    """Ways of cutting that are no regular expression."""

    SINGLE_DIGITS = auto()
    DIGIT_RUNS = auto()
    PUNCTUATION_RUNS = auto()
    BYTES_OF_GPT2_WORDS = auto()
    """Spells bytes as printable characters before the steps that follow, which see those."""


_ENGLISH = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SIGNS_AND_SPACES = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3_WORDS = rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_SIGNS_AND_SPACES}"
_QWEN2_WORDS = rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_SIGNS_AND_SPACES}"
_QWEN35_WORDS = (
    rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SIGNS_AND_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT4O_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENGLISH}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENGLISH}?"
    rf"|\p{{N}}{{1,3}}|{_SIGNS_AND_SLASH}"
)
_TEKKEN_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}|{_SIGNS_AND_SLASH}"
)
_BLOOM_WORDS = r" ?[^(\s|[.,!?…。，、।۔،])]+"
_BAILING_WORDS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED_WORDS = (
    rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}"
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_EXAONE_MOE_WORDS = (
    rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_MINICPM5_WORDS = rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}+|{_SIGNS_AND_SPACES}"
_JAIS2_SPACES = "|".join(rf"\s{{{size}}}(?!\S)" for size in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
_JAIS2_WORDS = (
    rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{_JAIS2_SPACES}|\s{{1}}"
)
_DEEPSEEK3_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The letters that have a case, as DeepSeek's first models list them.
_CASED_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌ"
    "ῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_EAST_ASIAN = "[一-龥ࠀ-一가-퟿]+"


@dataclass(frozen=True)
class PreTokenizerKind:
    """One way of cutting text.

    `steps` are applied in order, each to every piece the one before left; what a regular expression matches is a
    piece of its own. `nfc` is the family's normaliser, `ignore_merges` takes a whole word found in the vocabulary
    without merging, `adds_bos` is whether BOS is added when the file has no `add_bos_token`.
    """

    steps: tuple[str | Step, ...]
    nfc: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """The steps, then bytes spelled as printable characters, if no step has done that."""
        parts = [_part(step) for step in self.steps]
        if Step.BYTES_OF_GPT2_WORDS not in self.steps:
            parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(parts)

    def normalizer(self) -> normalizers.Normalizer | None:
        """The normaliser run on plain text before it is cut, if the family has one."""
        return normalizers.NFC() if self.nfc else None


def _part(step: str | Step) -> pre_tokenizers.PreTokenizer:
    match step:
        case Step.SINGLE_DIGITS:
            return pre_tokenizers.Digits(individual_digits=True)
        case Step.DIGIT_RUNS:
            return pre_tokenizers.Digits(individual_digits=False)
        case Step.PUNCTUATION_RUNS:
            return pre_tokenizers.Punctuation(behavior="contiguous")
        case Step.BYTES_OF_GPT2_WORDS:
            return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        case str():
            return pre_tokenizers.Split(Regex(step), behavior="isolated")


_GPT2 = PreTokenizerKind((_GPT2_WORDS,))
_GPT2_NFC = PreTokenizerKind((_GPT2_WORDS,), nfc=True)
_DIGITS_GPT2 = PreTokenizerKind((Step.SINGLE_DIGITS, _GPT2_WORDS))
_LLAMA3 = PreTokenizerKind((_LLAMA3_WORDS,), ignore_merges=True, adds_bos=True)
_CL100K = PreTokenizerKind((_LLAMA3_WORDS,))
_QWEN2 = PreTokenizerKind((_QWEN2_WORDS,), nfc=True)
_QWEN2_PLAIN = PreTokenizerKind((_QWEN2_WORDS,))
_GPT4O = PreTokenizerKind((_GPT4O_WORDS,))
_BLOOM = PreTokenizerKind((_BLOOM_WORDS,))
_BAILING = PreTokenizerKind((_BAILING_WORDS,))
_DEEPSEEK3 = PreTokenizerKind((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3_WORDS))

PRE_TOKENIZER_KINDS = {
    # GGUF's own: punctuation runs apart, then words, then digits in runs and in threes.
    "default": PreTokenizerKind((r"[\p{P}\$\+<=>\^~\|]+", _GPT2_WORDS, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt-2", "phi-2", "jais", "trillion", "granite-docling", "exaone4", "gigachat"), _GPT2),
    **dict.fromkeys(("mellum", "a.x-4.0"), _GPT2),
    **dict.fromkeys(("mpt", "olmo", "modern-bert"), _GPT2_NFC),
    **dict.fromkeys(("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"), _DIGITS_GPT2),
    "command-r": PreTokenizerKind((Step.SINGLE_DIGITS, _GPT2_WORDS), nfc=True),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "midm-2.0", "lfm2"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _CL100K),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"), _QWEN2),
    **dict.fromkeys(("hunyuan", "kormo", "solar-open", "grok-2"), _QWEN2_PLAIN),
    "qwen35": PreTokenizerKind((_QWEN35_WORDS,), nfc=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), _GPT4O),
    "tiny_aya": PreTokenizerKind((r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O_WORDS)),
    "tekken": PreTokenizerKind((_TEKKEN_WORDS,), ignore_merges=True, adds_bos=True),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm"), _DEEPSEEK3),
    "deepseek-llm": PreTokenizerKind(
        (
            "[\r\n]",
            rf"\s?[{_CASED_LETTERS}]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            _EAST_ASIAN,
            Step.SINGLE_DIGITS,
        )
    ),
    "deepseek-coder": PreTokenizerKind(
        ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIAN, Step.SINGLE_DIGITS),
    ),
    "falcon": PreTokenizerKind(
        (Step.PUNCTUATION_RUNS, Step.BYTES_OF_GPT2_WORDS, Step.DIGIT_RUNS, "[0-9][0-9][0-9]"),
    ),
    **dict.fromkeys(("bloom", "gpt3-finnish", "poro-chat"), _BLOOM),
    "viking": PreTokenizerKind((_BLOOM_WORDS, Step.SINGLE_DIGITS)),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING),
    "seed-coder": PreTokenizerKind((_SEED_WORDS,)),
    "exaone-moe": PreTokenizerKind((_EXAONE_MOE_WORDS,)),
    "minicpm5": PreTokenizerKind((r"\p{N}{1,3}", _MINICPM5_WORDS), ignore_merges=True),
    "jais-2": PreTokenizerKind((_JAIS2_WORDS,)),
}


def pre_tokenizer_kind(name: str) -> PreTokenizerKind:
    """The kind of that `tokenizer.ggml.pre` name. Raises UnsupportedModelError, with the known names."""
    if name not in PRE_TOKENIZER_KINDS:
        known = ", ".join(PRE_TOKENIZER_KINDS)
        raise UnsupportedModelError(f"tokenizer.ggml.pre: kind {name!r} is not supported (supported: {known})")
    return PRE_TOKENIZER_KINDS[name]
