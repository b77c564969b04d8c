"""Tokens as vectors: which tokens of the vocabulary point the same way as a word of the prompt. Owns the search.

The embedding matrix is read from the model's file, unpacked some rows at a time; a run's own copy is packed for speed.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twostroke.explain.story import Near, Token, Vectors, WordVector
from twostroke.explain.tokens import token_of
from twostroke.models.load import load_model
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.dequantize import dequantize
from twostroke.weights.source import WeightSource

Floats = npt.NDArray[np.float32]

_MATRIX = "token_embd.weight"
_ROWS_AT_ONCE_VALUES = 1 << 23  # 32 MiB as floats
_NUM_WORDS, _NUM_NEAREST, _NUM_SHOWN = 8, 8, 48
_LEAST_LETTERS = 3


def vectors_of(path: Path, tokenizer: Tokenizer, words: Sequence[Token]) -> Vectors | None:
    """These words in the model's embedding; None where there are none."""
    if not words:
        return None
    model = load_model(path)
    with closing(model.source):
        info = model.source.info(_MATRIX)
        rows = np.stack([_row(model.source, token.id) for token in words])
        cosines = _all_cosines(model.source, rows)[:, : tokenizer.vocab_size]  # (num_words, vocab)
    return Vectors(
        num_tokens=info.shape[0],
        dim=info.shape[1],
        type=info.type.name,
        words=tuple(
            WordVector(
                token,
                tuple(float(value) for value in row[:_NUM_SHOWN]),
                float(np.linalg.norm(row)),
                tuple(_nearest(tokenizer, token.id, near)),
                float(np.median(near)),
            )
            for token, row, near in zip(words, rows, cosines, strict=True)
        ),
        cosines=tuple(tuple(float(near[other.id]) for other in words) for near in cosines),
    )


def words_of(prompt: Sequence[Token]) -> list[Token]:
    """The user's tokens that are whole words, the rarest ones, in the prompt's order; where there are none, those of
    letters alone, as in scripts without spaces. A vocabulary has its frequent tokens first."""
    texts = [" ", *(token.text for token in prompt), " "]
    whole = {
        token.id: token
        for before, token, following in zip(texts[:-2], prompt, texts[2:], strict=True)
        if not token.is_template
        and len(token.text.strip()) >= _LEAST_LETTERS
        and token.text.strip().isalpha()
        and not (following[:1].isalpha() or (token.text[:1].isalpha() and before[-1:].isalpha()))
    }
    if not whole:
        whole = {token.id: token for token in prompt if not token.is_template and token.text.strip().isalpha()}
    rarest = sorted(whole, reverse=True)[:_NUM_WORDS]
    return [token for token_id, token in whole.items() if token_id in rarest]


def _all_cosines(source: WeightSource, rows: Floats) -> Floats:
    """(num_rows, vocab): with every row of the matrix; 0 with rows of zeros."""
    directions = _directions(rows)
    return np.concatenate([directions @ _directions(part).T for part in _parts(source)], axis=1)


def _directions(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), np.float32)


def _parts(source: WeightSource) -> Iterator[Floats]:
    """The matrix as floats, some rows at a time."""
    info = source.info(_MATRIX)
    num_rows, dim = info.shape
    packed = source.data(_MATRIX).reshape(num_rows, -1)
    step = max(1, _ROWS_AT_ONCE_VALUES // dim)
    for start in range(0, num_rows, step):
        part = packed[start : start + step]
        yield dequantize(part.reshape(-1), info.type, (len(part), dim))


def _row(source: WeightSource, token_id: int) -> Floats:
    info = source.info(_MATRIX)
    packed = source.data(_MATRIX).reshape(info.shape[0], -1)[token_id]
    row: Floats = dequantize(packed, info.type, (1, info.shape[1]))[0]
    return row


def _nearest(tokenizer: Tokenizer, token_id: int, cosines: Floats) -> Iterator[Near]:
    count = min(_NUM_NEAREST + 1, len(cosines))
    likeliest = np.argpartition(-cosines, count - 1)[:count]
    ordered = sorted((int(other) for other in likeliest), key=lambda other: -cosines[other])
    for other in [other for other in ordered if other != token_id][:_NUM_NEAREST]:
        yield Near(token_of(tokenizer, other), float(cosines[other]))
