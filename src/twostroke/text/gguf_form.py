"""A Hugging Face tokenizer and chat template as the keys of a GGUF file. Owns how the format says it, and the proof: a
form is only given that cuts a test text into the same ids.

Byte-level BPE is written with the first pre-tokenizer kind that passes, SentencePiece BPE with scores that order pieces
as its merges do.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.models import BPE

from twostroke.errors import ChatTemplateError, TwostrokeError, UnsupportedModelError
from twostroke.text.chat_sources import ChatSources
from twostroke.text.gguf_keys import PREFIX, TokenType
from twostroke.text.hf_segmenter import library_tokenizer
from twostroke.text.model_files import ModelFiles
from twostroke.text.pretokenizer import PRE_TOKENIZER_KINDS
from twostroke.text.sentencepiece import byte_of
from twostroke.text.tokenizer import Tokenizer
from twostroke.text.vocabulary import Vocabulary

Source = str | Path | Mapping[str, str]
_SPACES_DIFFER = (
    "the GGUF format puts a space before a text that begins with one or follows a control token: ids differ there"
)
# What tells kinds apart: digits, contractions, letters of many scripts, marks, signs, white space, emoji.
_SAMPLE = (
    "Hello, World! I'VE we're it'll HTTPServer camelCase 1 22 333 4444 55555 3.14 1,000 12345678901\n\n by\t\ttabs  \n"
    "\r\n éàü e\u0301 n\u0303 ÄÖÜß Straße Привет мир, שלום عالم 你好，世界。日本語のテキスト 한국어 ไทย हिन्दी ១២៣\n"
    "a+b==c; x->y(){}[]<>/* */ // # $% ^&*~`|\\ \"q\" 'q' “quotes” — – … ★☆ 🚀 👩‍👧 🇩🇪 ------====......!!!??? foo_bar\n"
    "/path/\n \n  \n"
)
# By `general.architecture`, the kinds to try first: names that other engines expect of it.
_FIRST_KINDS: Mapping[str, tuple[str, ...]] = {
    "llama": ("llama-bpe", "smollm", "tekken"),
    "smollm3": ("llama-bpe",),
    "qwen2": ("qwen2",),
    "qwen2moe": ("qwen2",),
    "qwen3": ("qwen2",),
    "qwen3moe": ("qwen2",),
    "phi3": ("gpt-4o", "dbrx"),
    "granite": ("refact", "dbrx"),
    "olmo2": ("dbrx", "olmo"),
    "olmoe": ("olmo",),
    "stablelm": ("stablelm2", "olmo", "gpt-2"),
    "gptneox": ("olmo",),
    "gpt-oss": ("gpt-4o",),
}
_NAMED = {"unk_token": "unknown_token_id", "pad_token": "padding_token_id"}


def gguf_tokenizer(source: Source, architecture: str, num_rows: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The `tokenizer.*` keys of a model directory, or of its text files by name; and what there is to warn of.

    They are for as many tokens as `num_rows`, those of the embedding table: padding fills them, tokens beyond are left
    out. Raises ModelFileError for a malformed file, UnsupportedModelError where no form gives the same ids.
    """
    files = ModelFiles(source)
    parsed = files.json("tokenizer.json") or {}
    vocabulary, truth = Vocabulary.from_hf(source), Tokenizer.from_hf(source)
    keys = {**_tokens(vocabulary, num_rows), **_named(files, vocabulary), **_templates(files)}
    forms = [
        {PREFIX + key: value for key, value in form.items()} | keys
        for form in _forms(parsed, vocabulary, architecture, num_rows)
    ]
    marks = "".join(truth.control_texts()[:8])
    strict = (f" {_SAMPLE}", marks + _SAMPLE + marks)
    for form in forms:
        if _is_same(form, truth, strict):
            return form, ()
    for form in forms if parsed["model"].get("byte_fallback") else ():
        if _is_same(form, truth, ()):
            return form, (_SPACES_DIFFER,)
    raise UnsupportedModelError("no tokenizer of the GGUF format gives the ids of its tokenizer.json")


def _forms(
    parsed: Mapping[str, Any], vocabulary: Vocabulary, architecture: str, num_rows: int
) -> Iterator[dict[str, Any]]:
    """Ways to write the tokenizer, likely ones first."""
    model = parsed["model"]
    if model.get("type", "BPE") != "BPE":
        return
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    if model.get("byte_fallback"):
        for add_prefix in (True, False):
            scores = _scores(vocabulary, merges, num_rows)
            yield {"model": "llama", "pre": "default", "scores": scores, "add_space_prefix": add_prefix}
        return
    cut = _cut(library_tokenizer(parsed, parsed.get("pre_tokenizer")))
    for name in dict.fromkeys((*_FIRST_KINDS.get(architecture, ()), *PRE_TOKENIZER_KINDS)):
        kind = PRE_TOKENIZER_KINDS[name]
        library = LibraryTokenizer(BPE())
        library.pre_tokenizer = kind.pre_tokenizer()
        library.normalizer = kind.normalizer()
        if kind.ignore_merges == bool(model.get("ignore_merges")) and _cut(library) == cut:
            yield {"model": "gpt2", "pre": name, "merges": [" ".join(merge) for merge in merges]}


def _cut(library: LibraryTokenizer) -> list[str]:
    """The sample as a tokenizer cuts it before it merges."""
    text = _SAMPLE if library.normalizer is None else library.normalizer.normalize_str(_SAMPLE)
    return [text] if library.pre_tokenizer is None else [p for p, _ in library.pre_tokenizer.pre_tokenize_str(text)]


def _tokens(vocabulary: Vocabulary, num_rows: int) -> dict[str, Any]:
    added = {token.token_id for token in vocabulary.added}
    tokens, types = list(vocabulary.tokens), []
    for token_id, text in enumerate(tokens):
        if token_id in vocabulary.unused_ids:
            tokens[token_id], kind = f"[PAD{token_id}]", TokenType.UNUSED
        elif token_id in vocabulary.special_ids:
            kind = TokenType.UNKNOWN if text == "<unk>" else TokenType.CONTROL
        elif token_id in added:
            kind = TokenType.USER_DEFINED
        else:
            kind = TokenType.BYTE if byte_of(text) >= 0 else TokenType.NORMAL
        types.append(kind)
    for token_id in range(len(tokens), num_rows):
        tokens.append(f"[PAD{token_id}]")
        types.append(TokenType.UNUSED)
    return {f"{PREFIX}tokens": tokens[:num_rows], f"{PREFIX}token_type": np.array(types[:num_rows], np.int32)}


def _scores(vocabulary: Vocabulary, merges: list[list[str]], num_rows: int) -> npt.NDArray[np.float32]:
    """Of each piece, so that what merges earlier has a higher one; pieces that nothing merges to come last."""
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault("".join(merge), rank)
    known = [-float(ranks.get(token, len(merges))) for token in vocabulary.tokens[:num_rows]]
    return np.array(known + [-float(len(merges))] * (num_rows - len(known)), np.float32)


def _named(files: ModelFiles, vocabulary: Vocabulary) -> dict[str, Any]:
    """Ids by name: BOS, ends, and what tokenizer_config.json calls unknown and padding."""
    ids = {text: token_id for token_id, text in enumerate(vocabulary.tokens) if text}
    config = {**(files.json("special_tokens_map.json") or {}), **(files.json("tokenizer_config.json") or {})}

    def named(name: str) -> int | None:
        token = config.get(name)
        return ids.get(str(token.get("content") if isinstance(token, dict) else token))

    found: dict[str, int | None] = {"bos_token_id": vocabulary.bos_id}
    found |= {key: named(name) for name, key in _NAMED.items()}
    eos = named("eos_token")
    ends = sorted(vocabulary.eos_ids, key=lambda token_id: (token_id != eos, token_id))
    found |= dict(zip(("eos_token_id", "eot_token_id", "eom_token_id"), ends, strict=False))
    keys: dict[str, Any] = {PREFIX + key: token_id for key, token_id in found.items() if token_id is not None}
    return keys | {f"{PREFIX}add_bos_token": vocabulary.add_bos}


def _templates(files: ModelFiles) -> dict[str, Any]:
    try:
        templates = ChatSources.from_files(files).templates
    except ChatTemplateError:
        return {}
    key = "tokenizer.chat_template"
    return {key if name == "default" else f"{key}.{name}": text for name, text in templates.items()}


def _is_same(metadata: Mapping[str, Any], truth: Tokenizer, strict: tuple[str, ...]) -> bool:
    """Whether a GGUF tokenizer gives the ids of the directory's own: for the sample, its words, and texts beside."""
    texts = (_SAMPLE, *_SAMPLE.split(), *strict)
    try:
        ours = Tokenizer.from_gguf(metadata)
        return all(ours.encode(text, parse_special=True) == truth.encode(text, parse_special=True) for text in texts)
    except TwostrokeError:
        return False
