"""A model file's tokens, their types, merges and named ids. Owns reading `tokenizer.ggml.*` keys and every check on
them; encodes and decodes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import cast

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.text.pretokenizer import PreTokenizerKind, pre_tokenizer_kind

_PREFIX = "tokenizer.ggml."
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Control tokens that end a turn or a text in the families supported, whether or not a key names them.
_END_TEXTS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
)


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`, as the GGUF format numbers it."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """Checked content of a file's byte-level BPE vocabulary.

    `tokens[token_id]` is the text as stored (bytes of normal tokens spelled as printable characters); `special_ids` are
    control and unknown tokens, `atomic_ids` user-defined ones, `unused_ids` padding rows of the embedding.
    """

    kind: PreTokenizerKind
    tokens: list[str]
    merges: list[tuple[str, str]]
    special_ids: frozenset[int]
    atomic_ids: frozenset[int]
    unused_ids: frozenset[int]
    bos_id: int | None
    eos_ids: frozenset[int]
    add_bos: bool

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> "Vocabulary":
        """Reads and checks the keys. Raises ModelFileError naming the key that is missing, malformed or out of range;
        UnsupportedModelError naming the tokenizer or pre-tokenizer kind."""
        model = _string(metadata, "model")
        if model != "gpt2":
            raise UnsupportedModelError(
                f"{_PREFIX}model: tokenizer kind {model!r} is not supported (supported: byte-level BPE, 'gpt2')"
            )
        kind = pre_tokenizer_kind(_string(metadata, "pre"))
        tokens = _tokens(metadata)
        types = _types(metadata, len(tokens))
        bos_id = _token_id(metadata, "bos_token_id", len(tokens))
        ends = {token_id for key in _END_KEYS if (token_id := _token_id(metadata, key, len(tokens))) is not None}
        named = ends if bos_id is None else ends | {bos_id}
        special_ids = _special_ids(types, named)
        ends |= {token_id for token_id in special_ids if tokens[token_id] in _END_TEXTS}
        return cls(
            kind=kind,
            tokens=tokens,
            merges=_merges(metadata, tokens, special_ids),
            special_ids=special_ids,
            atomic_ids=_ids_of_type(types, TokenType.USER_DEFINED) - special_ids,
            unused_ids=_ids_of_type(types, TokenType.UNUSED),
            bos_id=bos_id,
            eos_ids=frozenset(ends),
            add_bos=_add_bos(metadata, kind, bos_id),
        )


def _string(metadata: Mapping[str, object], key: str) -> str:
    value = metadata.get(_PREFIX + key)
    if not isinstance(value, str):
        found = "is missing" if value is None else f"must be a string, found {type(value).__name__}"
        raise ModelFileError(f"{_PREFIX}{key} {found}")
    return value


def _array(metadata: Mapping[str, object], key: str) -> list[object] | None:
    """The array as a list (NumPy arrays are converted), None when the key is absent."""
    value = metadata.get(_PREFIX + key)
    if value is None:
        return None
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, list):
        raise ModelFileError(f"{_PREFIX}{key} must be an array, found {type(value).__name__}")
    return value


def _strings(metadata: Mapping[str, object], key: str) -> list[str]:
    values = _array(metadata, key)
    if not values:
        raise ModelFileError(f"{_PREFIX}{key} is {'missing' if values is None else 'empty'}")
    if set(map(type, values)) != {str}:
        index = next(i for i, value in enumerate(values) if not isinstance(value, str))
        raise ModelFileError(f"{_PREFIX}{key}[{index}] must be a string, found {type(values[index]).__name__}")
    return cast("list[str]", values)


def _tokens(metadata: Mapping[str, object]) -> list[str]:
    tokens = _strings(metadata, "tokens")
    if len(set(tokens)) != len(tokens):
        first: dict[str, int] = {}
        for index, token in enumerate(tokens):
            if first.setdefault(token, index) != index:
                raise ModelFileError(f"{_PREFIX}tokens[{index}] repeats tokens[{first[token]}]: {token!r}")
    return tokens


def _types(metadata: Mapping[str, object], num_tokens: int) -> list[int] | None:
    types = _array(metadata, "token_type")
    if types is None:
        return None
    if len(types) != num_tokens:
        raise ModelFileError(f"{_PREFIX}token_type has {len(types)} entries for {num_tokens} tokens")
    known = set(map(int, TokenType))
    if set(map(type, types)) != {int} or not known.issuperset(cast("list[int]", types)):
        index = next(i for i, value in enumerate(types) if type(value) is not int or value not in known)
        raise ModelFileError(f"{_PREFIX}token_type[{index}] is {types[index]!r}, not a token type")
    return cast("list[int]", types)


def _ids_of_type(types: list[int] | None, wanted: TokenType) -> frozenset[int]:
    number = int(wanted)  # comparing plain ints: an enum's comparison costs ten times as much over a vocabulary
    return frozenset([token_id for token_id, value in enumerate(types or ()) if value == number])


def _special_ids(types: list[int] | None, named: set[int]) -> frozenset[int]:
    """Control and unknown tokens. A named id (BOS or an end) that the file calls user-defined, or gives no type, is
    one as well: its text in a message must not end the turn."""
    if types is None:
        return frozenset(named)
    named_as_user = {token_id for token_id in named if types[token_id] == TokenType.USER_DEFINED}
    return _ids_of_type(types, TokenType.CONTROL) | _ids_of_type(types, TokenType.UNKNOWN) | named_as_user


def _merges(metadata: Mapping[str, object], tokens: list[str], special_ids: frozenset[int]) -> list[tuple[str, str]]:
    """Pairs of ordinary tokens whose join is an ordinary token."""
    merges = _strings(metadata, "merges")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if set(map(len, pairs)) != {2}:
        index = next(i for i, pair in enumerate(pairs) if len(pair) != 2)
        raise ModelFileError(f"{_PREFIX}merges[{index}] must be two tokens and one space, found {merges[index]!r}")
    ordinary = set(tokens).difference([tokens[special_id] for special_id in special_ids])
    if not ordinary.issuperset(chain(chain.from_iterable(pairs), map("".join, pairs))):
        index = next(i for i, pair in enumerate(pairs) if not {*pair, "".join(pair)} <= ordinary)
        raise ModelFileError(f"{_PREFIX}merges[{index}] {merges[index]!r} has a part or a result that is no token")
    return cast("list[tuple[str, str]]", pairs)


def _token_id(metadata: Mapping[str, object], key: str, num_tokens: int) -> int | None:
    value = metadata.get(_PREFIX + key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < num_tokens:
        raise ModelFileError(f"{_PREFIX}{key} is {value!r}, outside the vocabulary of {num_tokens} tokens")
    return value


def _add_bos(metadata: Mapping[str, object], kind: PreTokenizerKind, bos_id: int | None) -> bool:
    value = metadata.get(_PREFIX + "add_bos_token")
    if value is None:
        return kind.adds_bos and bos_id is not None
    if not isinstance(value, bool):
        raise ModelFileError(f"{_PREFIX}add_bos_token must be true or false, found {value!r}")
    if value and bos_id is None:
        raise ModelFileError(f"{_PREFIX}add_bos_token is true and {_PREFIX}bos_token_id is missing")
    return value
