"""The tokenizer of a Hugging Face directory: `tokenizer.json`, and what its neighbours say of BOS and of ends. Owns the
reading and its checks; cutting text is the `tokenizers` library's, set up in `hf_segmenter.py` from the very
parts the file describes.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, cast

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.text.added_tokens import AddedToken
from twostroke.text.hf_segmenter import LibraryModel, LibrarySegmenter
from twostroke.text.model_files import ModelFiles
from twostroke.text.vocabulary import Vocabulary, end_ids

_FILE = "tokenizer.json"
_MAX_TOKENS = 1 << 22
_FLAGS = ("special", "lstrip", "rstrip", "single_word")
_KINDS = ("BPE", "Unigram")


def read_vocabulary(files: ModelFiles) -> Vocabulary:
    """Reads and checks the files. Raises ModelFileError naming the file and the field; UnsupportedModelError naming a
    kind of tokenizer or decoder that is not supported."""
    parsed = files.json(_FILE)
    if parsed is None:
        raise ModelFileError(f"{_FILE} is missing")
    model = parsed.get("model")
    if not isinstance(model, dict):
        raise ModelFileError(f"{_FILE}: model must be an object, found {type(model).__name__}")
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind not in _KINDS:
        raise UnsupportedModelError(f"{_FILE}: model type {kind!r} is not supported (supported: {', '.join(_KINDS)})")
    named = _NamedTokens(files)
    plain = _bpe_tokens(model) if kind == "BPE" else _unigram_tokens(model)
    added = list(_added_tokens(parsed))
    tokens, unused_ids = _by_id(plain, added)
    ids = {token: token_id for token_id, token in enumerate(tokens) if token}
    start = _template_start(parsed.get("post_processor"))
    bos_id = named.id("bos", ids, len(tokens))
    bos_id = start if bos_id is None and start is not None and start < len(tokens) else bos_id
    ends = named.end_ids(ids, len(tokens))
    added = _with_named(added, tokens, ends | ({bos_id} if bos_id is not None else set()))
    special_ids = frozenset(token.token_id for token in added if token.special)
    library = LibraryModel(kind, model, parsed, plain, tokens, special_ids, frozenset(t.token_id for t in added))
    return Vocabulary(
        tokens=tokens,
        added=tuple(added),
        special_ids=special_ids,
        unused_ids=unused_ids,
        bos_id=bos_id,
        eos_ids=end_ids(tokens, special_ids, ends),
        add_bos=named.add_bos(bos_id, by_template=start is not None and start == bos_id),
        make_segmenter=partial(LibrarySegmenter, library),
    )


class _NamedTokens:
    """What tokenizer_config.json, special_tokens_map.json, config.json and generation_config.json name."""

    def __init__(self, files: ModelFiles) -> None:
        self._tokenizer = files.json("tokenizer_config.json") or {}
        self._map = files.json("special_tokens_map.json") or {}
        self._configs = {name: files.json(name) or {} for name in ("config.json", "generation_config.json")}

    def id(self, name: str, ids: Mapping[str, int], num_tokens: int) -> int | None:
        """The id of `bos` or `eos`: the tokenizer's token of that name, else the model's id."""
        for source in (self._tokenizer, self._map):
            token = source.get(f"{name}_token")
            text = token.get("content") if isinstance(token, dict) else token
            if isinstance(text, str) and text in ids:
                return ids[text]
        found = sorted(self._config_ids(f"{name}_token_id", num_tokens))
        return found[0] if found else None

    def end_ids(self, ids: Mapping[str, int], num_tokens: int) -> set[int]:
        """The union of what every file calls an end."""
        named = self.id("eos", ids, num_tokens)
        return {*self._config_ids("eos_token_id", num_tokens), *([] if named is None else [named])}

    def add_bos(self, bos_id: int | None, *, by_template: bool) -> bool:
        """Whether BOS goes before a text: as `add_bos_token` says, else as the post-processor does."""
        wanted = self._tokenizer.get("add_bos_token")
        if wanted is None:
            return by_template
        if not isinstance(wanted, bool):
            raise ModelFileError(f"tokenizer_config.json: add_bos_token must be true or false, found {wanted!r}")
        if wanted and bos_id is None:
            raise ModelFileError("tokenizer_config.json: add_bos_token is true and no file names a BOS token")
        return wanted

    def _config_ids(self, key: str, num_tokens: int) -> Iterator[int]:
        for file, config in self._configs.items():
            text_config = config.get("text_config")
            inner = text_config.get(key) if isinstance(text_config, dict) else None
            for value in (config.get(key), inner):
                for token_id in value if isinstance(value, list) else [value]:
                    if token_id is None:
                        continue
                    if type(token_id) is not int or not 0 <= token_id < num_tokens:
                        raise ModelFileError(
                            f"{file}: {key} {token_id!r} is outside the vocabulary of {num_tokens} tokens"
                        )
                    yield token_id


def _bpe_tokens(model: Mapping[str, Any]) -> dict[str, int]:
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not {int}.issuperset(map(type, vocab.values())):
        raise ModelFileError(f"{_FILE}: model.vocab must map tokens to ids")
    return cast("dict[str, int]", vocab)


def _unigram_tokens(model: Mapping[str, Any]) -> dict[str, int]:
    vocab = model.get("vocab")
    if not isinstance(vocab, list) or not all(_is_scored(entry) for entry in vocab):
        raise ModelFileError(f"{_FILE}: model.vocab must be a list of pieces and scores")
    ids = {piece: token_id for token_id, (piece, _) in enumerate(vocab)}
    if len(ids) != len(vocab):
        raise ModelFileError(f"{_FILE}: model.vocab has a piece twice")
    unknown = model.get("unk_id")
    if unknown is not None and (type(unknown) is not int or not 0 <= unknown < len(vocab)):
        raise ModelFileError(f"{_FILE}: model.unk_id {unknown!r} is outside the vocabulary of {len(vocab)} tokens")
    return ids


def _is_scored(entry: object) -> bool:
    return (
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], (int, float))
    )


def _added_tokens(parsed: Mapping[str, Any]) -> Iterator[AddedToken]:
    entries = parsed.get("added_tokens") or []
    if not isinstance(entries, list):
        raise ModelFileError(f"{_FILE}: added_tokens must be a list")
    for index, entry in enumerate(entries):
        fields = entry if isinstance(entry, dict) else {}
        token_id, content = fields.get("id"), fields.get("content")
        flags = {flag: fields.get(flag, False) for flag in _FLAGS}
        if (
            type(token_id) is not int
            or not isinstance(content, str)
            or not {bool}.issuperset(map(type, flags.values()))
        ):
            raise ModelFileError(f"{_FILE}: added_tokens[{index}] is malformed")
        yield AddedToken(token_id, content, **flags)


def _by_id(plain: Mapping[str, int], added: list[AddedToken]) -> tuple[list[str], frozenset[int]]:
    """Every token by its id, ids that no token has as empty texts, and those ids."""
    pairs = [*plain.items(), *((token.content, token.token_id) for token in added)]
    if not pairs:
        raise ModelFileError(f"{_FILE}: the vocabulary is empty")
    lowest, highest = min(token_id for _, token_id in pairs), max(token_id for _, token_id in pairs)
    if lowest < 0 or highest >= _MAX_TOKENS:
        raise ModelFileError(f"{_FILE}: token id {lowest if lowest < 0 else highest} is outside 0 to {_MAX_TOKENS - 1}")
    tokens: list[str | None] = [None] * (highest + 1)
    for text, token_id in pairs:
        if tokens[token_id] not in (None, text):
            raise ModelFileError(f"{_FILE}: token id {token_id} is both {tokens[token_id]!r} and {text!r}")
        if plain.get(text, token_id) != token_id:
            raise ModelFileError(f"{_FILE}: token {text!r} has the ids {plain[text]} and {token_id}")
        tokens[token_id] = text
    return [text or "" for text in tokens], frozenset(i for i, text in enumerate(tokens) if not text)


def _with_named(added: list[AddedToken], tokens: list[str], named: set[int]) -> list[AddedToken]:
    """The added tokens, those that files name (BOS and ends) as control tokens: their text in a message must not end
    the turn."""
    kept = [token for token in added if token.special or token.token_id not in named]
    listed = {token.token_id for token in kept}
    return kept + [AddedToken(token_id, tokens[token_id], special=True) for token_id in sorted(named - listed)]


def _template_start(processor: object) -> int | None:
    """The id that the post-processor puts before a text."""
    if not isinstance(processor, dict):
        return None
    inner = processor.get("processors")
    if isinstance(inner, list):
        return next((found for part in inner if (found := _template_start(part)) is not None), None)
    try:
        name = processor["single"][0]["SpecialToken"]["id"]
        token_id = processor["special_tokens"][name]["ids"][0]
    except (KeyError, IndexError, TypeError):
        return None
    return token_id if type(token_id) is int and token_id >= 0 else None
