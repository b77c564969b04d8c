"""Cutting text with the `tokenizers` library from the parts of a `tokenizer.json`. Owns how the library is set up
without added tokens, which `added_tokens.py` finds, and how each kind of decoder spells a token.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.models import BPE, Unigram

from twostroke.errors import InvalidRequestError, ModelFileError, UnsupportedModelError
from twostroke.text.byte_level import byte_values, spell_byte_level
from twostroke.text.growth import check_normalizer
from twostroke.text.sentencepiece import SPACE, byte_of, reraise_interrupt

_FILE = "tokenizer.json"
_SPACED_DECODERS = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}


@dataclass(frozen=True)
class LibraryModel:
    """A checked `tokenizer.json`: its `model` part of a `kind`, the whole file, ids of the model's own tokens, all
    tokens by id, and the ids of control tokens and of all added ones."""

    kind: str
    model: Mapping[str, Any]
    parsed: Mapping[str, Any]
    plain: Mapping[str, int]
    tokens: Sequence[str]
    special_ids: frozenset[int]
    added_ids: frozenset[int]


class LibrarySegmenter:
    """See `Segmenter`. Raises ModelFileError where the library refuses a part, UnsupportedModelError naming a decoder
    whose tokens cannot be spelled one by one."""

    def __init__(self, library: LibraryModel) -> None:
        self._library = library
        self._byte_values = byte_values() if _is_byte_level(library.parsed) else None
        self._has_bytes = bool(library.model.get("byte_fallback"))
        self.strips_space = _strips_space(library.parsed)
        pre_tokenizer = library.parsed.get("pre_tokenizer")
        check_normalizer(library.parsed.get("normalizer"), f"{_FILE}: normalizer")
        try:
            model = _bpe(library) if library.kind == "BPE" else _unigram(library)
            self._first = library_tokenizer(library.parsed, pre_tokenizer)
            self._first.model = model
            # A prefix that only the text's first word takes.
            self._later = library_tokenizer(library.parsed, _never_first(pre_tokenizer))
            self._later.model = model
        except ModelFileError:
            raise
        except BaseException as error:  # a panic of the library is no Exception
            reraise_interrupt(error)
            raise ModelFileError(f"{_FILE}: {' '.join(str(error).split())[:200]}") from None

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """See `Segmenter`. Raises InvalidRequestError when the library fails on the text."""
        tokenizer = self._first if is_first else self._later
        try:
            return tokenizer.encode(text, add_special_tokens=False).ids
        except BaseException as error:
            reraise_interrupt(error)
            raise InvalidRequestError(f"the tokenizer fails on this text: {' '.join(str(error).split())}") from None

    def spell(self, token_id: int) -> bytes:
        """See `Segmenter`."""
        text, is_added = self._library.tokens[token_id], token_id in self._library.added_ids
        if self._byte_values is not None:
            return text.encode("utf-8", errors="replace") if is_added else spell_byte_level(text, self._byte_values)
        if self._has_bytes and not is_added and (byte := byte_of(text)) >= 0:
            return bytes([byte])
        return text.replace(SPACE, " ").encode("utf-8", errors="replace")


def _bpe(library: LibraryModel) -> BPE:
    """The model without control tokens and what merges to them, so that no plain text can become one."""
    model, unknown = library.model, library.model.get("unk_token")
    hidden = {library.tokens[token_id] for token_id in library.special_ids}
    vocab = {text: token_id for text, token_id in library.plain.items() if text not in hidden or text == unknown}
    prefix = model.get("continuing_subword_prefix") or ""
    texts = {
        "unk_token": unknown,
        "continuing_subword_prefix": prefix,
        "end_of_word_suffix": model.get("end_of_word_suffix"),
    }
    flags = {name: bool(model.get(name)) for name in ("fuse_unk", "byte_fallback", "ignore_merges")}
    merges = list(_merges(model.get("merges"), library.plain, hidden, prefix))
    return BPE(vocab, merges, **flags, **{name: text for name, text in texts.items() if text})


def _merges(merges: object, plain: Mapping[str, int], hidden: set[str], prefix: str) -> Iterator[tuple[str, str]]:
    """Pairs of ordinary tokens whose join is an ordinary token; pairs with a hidden one are left out."""
    if not isinstance(merges, list):
        raise ModelFileError(f"{_FILE}: model.merges must be a list")
    for index, merge in enumerate(merges):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise ModelFileError(f"{_FILE}: model.merges[{index}] must be two tokens, found {str(merge)[:80]!r}")
        left, right = pair
        joined = left + right.removeprefix(prefix)
        if left not in plain or right not in plain or joined not in plain:
            raise ModelFileError(f"{_FILE}: model.merges[{index}] {merge!r} has a part or a result that is no token")
        if hidden.isdisjoint((left, right, joined)):
            yield left, right


def _unigram(library: LibraryModel) -> Unigram:
    """The model with control tokens as empty pieces, which never match."""
    hidden = {library.tokens[token_id] for token_id in library.special_ids}
    vocab = [("" if piece in hidden else piece, float(score)) for piece, score in library.model["vocab"]]
    return Unigram(vocab, library.model.get("unk_id"), bool(library.model.get("byte_fallback")))


def library_tokenizer(parsed: Mapping[str, Any], pre_tokenizer: object) -> LibraryTokenizer:
    """The library's, with the normaliser of a `tokenizer.json` and a pre-tokenizer, and no vocabulary."""
    parts = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": parsed.get("normalizer"),
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }
    return LibraryTokenizer.from_str(json.dumps(parts))


def _never_first(part: Any) -> Any:
    """A pre-tokenizer as it is for text that is not at the start."""
    if not isinstance(part, dict):
        return part
    inner = part.get("pretokenizers")
    if isinstance(inner, list):
        return {**part, "pretokenizers": [_never_first(each) for each in inner]}
    return {**part, "prepend_scheme": "never"} if part.get("prepend_scheme") == "first" else part


def _steps(part: object, key: str) -> list[Mapping[str, Any]]:
    """A part of the file as a flat list: a sequence's members, or itself."""
    if not isinstance(part, dict):
        return []
    inner = part.get(key)
    return [step for each in inner for step in _steps(each, key)] if isinstance(inner, list) else [part]


def _is_byte_level(parsed: Mapping[str, Any]) -> bool:
    """Whether tokens spell bytes by printable characters, else spaces by U+2581."""
    decoders = {str(step.get("type")) for step in _steps(parsed.get("decoder"), "decoders")}
    if not decoders:
        decoders = {str(step.get("type")) for step in _steps(parsed.get("pre_tokenizer"), "pretokenizers")}
        return "ByteLevel" in decoders
    if "ByteLevel" in decoders:
        return True
    if unknown := sorted(decoders - _SPACED_DECODERS):
        raise UnsupportedModelError(f"{_FILE}: decoder {unknown[0]!r} is not supported")
    return False


def _strips_space(parsed: Mapping[str, Any]) -> bool:
    for step in _steps(parsed.get("decoder"), "decoders"):
        if step.get("type") == "Strip" and step.get("content") == " " and step.get("start", 0):
            return True
        if step.get("type") == "Metaspace" and step.get("add_prefix_space", True):
            return bool(step.get("prepend_scheme", "always") != "never")
    return False
