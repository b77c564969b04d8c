"""A GGUF file's tokens, their types, merges, scores and named ids. Owns what the `tokenizer.ggml.*` keys mean, and
their defaults; the checks of a single key are `gguf_keys.py`'s. Encodes and decodes nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TypeAlias, cast

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.text import gguf_keys as keys
from twostroke.text.added_tokens import AddedToken
from twostroke.text.byte_level import ByteLevelSegmenter
from twostroke.text.gguf_keys import PREFIX, TokenType
from twostroke.text.pretokenizer import pre_tokenizer_kind
from twostroke.text.segmenter import Segmenter
from twostroke.text.sentencepiece import SPACE, BPESegmenter, Pieces, SpaceRules, UnigramSegmenter, byte_of
from twostroke.text.vocabulary import Vocabulary, end_ids

_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_KINDS = {"gpt2": "byte-level BPE", "llama": "SentencePiece BPE", "t5": "SentencePiece Unigram"}
# What the format takes where a SentencePiece file has no key.
_SENTENCEPIECE_IDS = {
    "llama": {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0},
    "t5": {"eos_token_id": 1, "unknown_token_id": 2},
    "gpt2": {},
}
# Phi-3's control tokens take the white space after them, but for these; the format has no flag for it.
_NAMES_THAT_STRIP = ("phi-3", "phi3")
_NEVER_STRIP = frozenset({"<unk>", "<s>", "<|endoftext|>"})


def read_vocabulary(metadata: Mapping[str, object]) -> Vocabulary:
    """Reads and checks the keys. Raises ModelFileError naming the key that is missing, malformed or out of range;
    UnsupportedModelError naming the tokenizer or pre-tokenizer kind."""
    model = keys.string(metadata, "model")
    if model not in _KINDS:
        known = ", ".join(f"{kind}, {name!r}" for name, kind in _KINDS.items())
        raise UnsupportedModelError(f"{PREFIX}model: tokenizer kind {model!r} is not supported (supported: {known})")
    tokens = keys.tokens(metadata)
    types = keys.types(metadata, len(tokens))
    named = {key: _named_id(metadata, model, key, len(tokens)) for key in ("bos_token_id", *_END_KEYS)}
    ends = [token_id for key in _END_KEYS if (token_id := named[key]) is not None]
    bos_id = named["bos_token_id"]
    special_ids = _special_ids(types, {*ends, bos_id} - {None})
    atomic_ids = keys.ids_of_type(types, TokenType.USER_DEFINED) - special_ids
    make, adds_bos = _SEGMENTERS[model](metadata, tokens, types, special_ids, atomic_ids)
    return Vocabulary(
        tokens=tokens,
        added=tuple(_added(metadata, tokens, special_ids, atomic_ids)),
        alike=("", "") if model == "gpt2" else (SPACE, " "),
        special_ids=special_ids,
        unused_ids=keys.ids_of_type(types, TokenType.UNUSED) | {i for i, token in enumerate(tokens) if not token},
        bos_id=bos_id,
        eos_ids=end_ids(tokens, special_ids, ends),
        add_bos=_add_bos(metadata, adds_bos, bos_id),
        make_segmenter=make,
    )


def _named_id(metadata: Mapping[str, object], model: str, key: str, num_tokens: int) -> int | None:
    named = keys.token_id(metadata, key, num_tokens)
    default = _SENTENCEPIECE_IDS[model].get(key)
    return default if named is None and default is not None and default < num_tokens else named


def _special_ids(types: list[int] | None, named: set[int | None]) -> frozenset[int]:
    """Control and unknown tokens. A named id (BOS or an end) that the file calls user-defined, or gives no type, is
    one as well: its text in a message must not end the turn."""
    ids = frozenset(token_id for token_id in named if token_id is not None)
    if types is None:
        return ids
    named_as_user = {token_id for token_id in ids if types[token_id] == TokenType.USER_DEFINED}
    return keys.ids_of_type(types, TokenType.CONTROL) | keys.ids_of_type(types, TokenType.UNKNOWN) | named_as_user


def _added(
    metadata: Mapping[str, object], tokens: list[str], special_ids: frozenset[int], atomic_ids: frozenset[int]
) -> Iterator[AddedToken]:
    name = str(metadata.get("general.name", "")).lower()
    strips = any(part in name for part in _NAMES_THAT_STRIP)
    for token_id in sorted(special_ids):
        text = tokens[token_id]
        yield AddedToken(token_id, text, special=True, rstrip=strips and text not in _NEVER_STRIP)
    for token_id in sorted(atomic_ids):
        yield AddedToken(token_id, tokens[token_id])


# How to make the segmenter, and whether BOS is added when the file does not say.
_Made: TypeAlias = tuple[Callable[[], Segmenter], bool]


def _byte_level(
    metadata: Mapping[str, object],
    tokens: list[str],
    types: list[int] | None,
    special_ids: frozenset[int],
    atomic_ids: frozenset[int],
) -> _Made:
    kind = pre_tokenizer_kind(keys.string(metadata, "pre"))
    merges = _merges(metadata, tokens, special_ids)
    make = partial(
        ByteLevelSegmenter, kind, tokens, merges, special_ids=special_ids, literal_ids=special_ids | atomic_ids
    )
    return make, kind.adds_bos


def _sentencepiece(
    metadata: Mapping[str, object],
    tokens: list[str],
    types: list[int] | None,
    special_ids: frozenset[int],
    atomic_ids: frozenset[int],
) -> _Made:
    scores = keys.scores(metadata, len(tokens))
    byte_ids = {byte: token_id for token_id, text in enumerate(tokens) if (byte := byte_of(text)) >= 0}
    if types is not None:
        byte_ids = {byte: token_id for byte, token_id in byte_ids.items() if types[token_id] == TokenType.BYTE}
    unused_ids = keys.ids_of_type(types, TokenType.UNUSED)
    apart = {*special_ids, *atomic_ids, *byte_ids.values()}  # never made by merging
    plain = [token_id for token_id, text in enumerate(tokens) if text and token_id not in apart]
    unigram = keys.string(metadata, "model") == "t5"
    pieces = Pieces(
        tokens=tokens,
        scores={tokens[token_id]: scores[token_id] for token_id in plain},
        ids={tokens[token_id]: token_id for token_id in plain if token_id not in unused_ids},
        unused=frozenset(tokens[token_id] for token_id in plain if token_id in unused_ids),
        byte_ids=byte_ids,
        unknown_id=_named_id(metadata, "t5" if unigram else "llama", "unknown_token_id", len(tokens)),
    )
    rules = SpaceRules(
        add_prefix=keys.flag(metadata, "add_space_prefix", True),
        remove_extra=keys.flag(metadata, "remove_extra_whitespaces", False),
        charsmap=keys.byte_string(metadata, "precompiled_charsmap"),
    )
    return partial(UnigramSegmenter if unigram else BPESegmenter, pieces, rules), not unigram


_SEGMENTERS = {"gpt2": _byte_level, "llama": _sentencepiece, "t5": _sentencepiece}


def _merges(metadata: Mapping[str, object], tokens: list[str], special_ids: frozenset[int]) -> list[tuple[str, str]]:
    """Pairs of ordinary tokens whose join is an ordinary token."""
    merges = keys.strings(metadata, "merges")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if set(map(len, pairs)) != {2}:
        index = next(i for i, pair in enumerate(pairs) if len(pair) != 2)
        raise ModelFileError(f"{PREFIX}merges[{index}] must be two tokens and one space, found {merges[index]!r}")
    ordinary = set(tokens).difference([tokens[special_id] for special_id in special_ids])
    if not ordinary.issuperset(chain(chain.from_iterable(pairs), map("".join, pairs))):
        index = next(i for i, pair in enumerate(pairs) if not {*pair, "".join(pair)} <= ordinary)
        raise ModelFileError(f"{PREFIX}merges[{index}] {merges[index]!r} has a part or a result that is no token")
    return cast("list[tuple[str, str]]", pairs)


def _add_bos(metadata: Mapping[str, object], by_default: bool, bos_id: int | None) -> bool:
    wanted = keys.flag(metadata, "add_bos_token", by_default and bos_id is not None)
    if wanted and bos_id is None:
        raise ModelFileError(f"{PREFIX}add_bos_token is true and {PREFIX}bos_token_id is missing")
    return wanted
