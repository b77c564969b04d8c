"""SentencePiece vocabularies, BPE and Unigram: pieces in which a space is U+2581, and bytes for what has no piece. Owns
the rules of spaces and of unknown characters; merging by score is `piece_merger.py`'s, Unigram's search the
`tokenizers` library's.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer as SearchTokenizer
from tokenizers.models import Unigram
from tokenizers.normalizers import Precompiled

from twostroke.errors import InvalidRequestError, ModelFileError
from twostroke.text.growth import check_charsmap
from twostroke.text.piece_merger import PieceMerger

SPACE = "\u2581"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class SpaceRules:
    """What is done to a text before it is cut: `charsmap` is SentencePiece's compiled table of replacements (empty:
    none), `remove_extra` drops spaces at both ends and all but one of a run, `add_prefix` puts one before every text,
    one after an added token included."""

    add_prefix: bool
    remove_extra: bool = False
    charsmap: bytes = b""

    def normalizer(self) -> Precompiled | None:
        """The compiled table. Raises ModelFileError when it is damaged."""
        if not self.charsmap:
            return None
        check_charsmap(self.charsmap, "tokenizer.ggml.precompiled_charsmap")
        try:
            return Precompiled(self.charsmap)
        except BaseException as error:  # a panic of the library is no Exception
            reraise_interrupt(error)
            raise ModelFileError("tokenizer.ggml.precompiled_charsmap is damaged") from None

    def apply(self, text: str, normalizer: Precompiled | None) -> str:
        """`text` with the rules applied and spaces as U+2581. Raises InvalidRequestError when the table fails on it."""
        if normalizer is not None:
            try:
                text = normalizer.normalize_str(text)
            except BaseException as error:  # a panic of the library is no Exception
                reraise_interrupt(error)
                raise InvalidRequestError("the model's table of character replacements fails on this text") from None
        if self.remove_extra:
            text = re.sub(" {2,}", " ", text).strip(" ")
        if self.add_prefix and text:
            text = f" {text}"
        text = text.replace(" ", SPACE)
        return text.rstrip(SPACE) if self.remove_extra else text


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece vocabulary: every token's text and score, and what merging may use.

    `tokens` by id; `scores` of the pieces that text may become; `unused` pieces among them that have no id to give;
    `byte_ids` by byte, empty without byte fallback; `unknown_id` is given for what nothing else covers.
    """

    tokens: Sequence[str]
    scores: Mapping[str, float]
    ids: Mapping[str, int]
    unused: frozenset[str]
    byte_ids: Mapping[int, int]
    unknown_id: int | None

    def ids_of(self, pieces: Iterator[str]) -> list[int]:
        """Ids of pieces; one without an id is its bytes, else unknown (one id for neighbours)."""
        ids: list[int] = []
        was_unknown = False
        for piece in pieces:
            token_id = self.ids.get(piece)
            is_unknown = token_id is None and not self.byte_ids
            if token_id is not None:
                ids.append(token_id)
            elif self.byte_ids:
                ids += [self.byte_ids[byte] for byte in piece.encode("utf-8") if byte in self.byte_ids]
            elif self.unknown_id is not None and not was_unknown:
                ids.append(self.unknown_id)
            was_unknown = is_unknown
        return ids

    def spell(self, token_id: int) -> bytes:
        """The bytes of a token: a byte token's byte, else its text with spaces."""
        text = self.tokens[token_id]
        if self.byte_ids.get(byte := byte_of(text)) == token_id:
            return bytes([byte])
        return text.replace(SPACE, " ").encode("utf-8", errors="replace")


class BPESegmenter:
    """SentencePiece's BPE from scores alone, as GGUF stores it."""

    def __init__(self, pieces: Pieces, rules: SpaceRules) -> None:
        self._pieces = pieces
        self._rules = rules
        self._normalizer = rules.normalizer()
        self._merger = PieceMerger(pieces.scores, pieces.unused)
        self.strips_space = rules.add_prefix
        self.spell = pieces.spell

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """See `Segmenter`."""
        return self._pieces.ids_of(iter(self._merger.merge(self._rules.apply(text, self._normalizer))))


class UnigramSegmenter:
    """SentencePiece's Unigram: of all ways to cut a text, the one of the highest total score."""

    def __init__(self, pieces: Pieces, rules: SpaceRules) -> None:
        self._pieces = pieces
        self._rules = rules
        self._normalizer = rules.normalizer()
        self._unknown = len(pieces.tokens)
        # An empty piece never matches: so no plain text becomes a control or a byte token.
        table = [(text if text in pieces.ids else "", pieces.scores.get(text, 0.0)) for text in pieces.tokens]
        self._search = SearchTokenizer(Unigram([*table, ("", 0.0)], self._unknown, False))
        self.strips_space = rules.add_prefix
        self.spell = pieces.spell

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """See `Segmenter`."""
        text = self._rules.apply(text, self._normalizer)
        found = self._search.encode(text, add_special_tokens=False)
        ids: list[int] = []
        for token_id, (start, end) in zip(found.ids, found.offsets, strict=True):
            ids += [token_id] if token_id != self._unknown else self._pieces.ids_of(iter([text[start:end]]))
        return ids


def byte_of(token: str) -> int:
    """The byte that a token spelled `<0xHH>` stands for, -1 for any other."""
    found = _BYTE_TOKEN.fullmatch(token)
    return int(found[1], 16) if found else -1


def reraise_interrupt(error: BaseException) -> None:
    """Lets through what is no failure of the library; its panics are no Exception."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error
