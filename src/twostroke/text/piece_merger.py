"""SentencePiece's BPE: the neighbours whose join is the best-scored piece are joined first. Owns the merging of one
text; spaces, bytes and ids are `sentencepiece.py`'s.

Time: a text is first cut wherever no piece of the vocabulary has the two characters side by side. No merge can reach
over such a cut, so the result is that of the whole text, the parts are words, and words repeat. Within a part each
merge costs a heap operation, so a text without cuts takes n log n.
"""

import heapq
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from operator import add

_CACHED_WORDS = 1 << 16
_LONGEST_CACHED_WORD = 64


class PieceMerger:
    """Merges by score. `scores` has every piece that merging may make; those in `unused` are only steps on the way to
    others and are taken apart again. Safe to share between threads."""

    def __init__(self, scores: Mapping[str, float], unused: Iterable[str] = ()) -> None:
        self._scores = scores
        self._unused = frozenset(unused)
        self._longest = max(map(len, scores), default=0)
        chars = "\0".join(scores)
        self._neighbours = frozenset(map(add, chars, chars[1:]))
        self._merge_cached = lru_cache(_CACHED_WORDS)(self._merge)

    def merge(self, text: str) -> list[str]:
        """The pieces of `text`, in order. A character that is in no piece is a piece of its own."""
        pairs = map(add, text, text[1:])
        cuts = [index for index, pair in enumerate(pairs, 1) if pair not in self._neighbours]
        words = (text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True))
        return list(chain.from_iterable(map(self._word, words)))

    def _word(self, word: str) -> tuple[str, ...]:
        return self._merge_cached(word) if len(word) <= _LONGEST_CACHED_WORD else self._merge(word)

    def _merge(self, word: str) -> tuple[str, ...]:
        if len(word) < 2:
            return (word,) if word else ()
        symbols = list(word)  # a symbol merged into its left neighbour is empty
        before = list(range(-1, len(word) - 1))
        after = [*range(1, len(word)), -1]
        parts: dict[str, tuple[str, str]] = {}  # of unused pieces
        queue: list[tuple[float, int, int, int]] = []  # (-score, left, right, length): best score, then leftmost

        def offer(left: int, right: int) -> None:
            if left < 0 or right < 0 or len(symbols[left]) + len(symbols[right]) > self._longest:
                return
            piece = symbols[left] + symbols[right]
            if (score := self._scores.get(piece)) is not None:
                heapq.heappush(queue, (-score, left, right, len(piece)))
                if piece in self._unused:
                    parts[piece] = symbols[left], symbols[right]

        for right in range(1, len(word)):
            offer(right - 1, right)
        while queue:
            _, left, right, length = heapq.heappop(queue)
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != length:
                continue  # one of the two has changed since
            symbols[left] += symbols[right]
            symbols[right] = ""
            after[left] = after[right]
            if after[right] >= 0:
                before[after[right]] = left
            offer(before[left], left)
            offer(left, after[left])
        return tuple(_take_apart([symbol for symbol in symbols if symbol], parts))


def _take_apart(symbols: list[str], parts: Mapping[str, tuple[str, str]]) -> Iterable[str]:
    if not parts:
        return symbols
    pieces: list[str] = []
    stack = symbols[::-1]
    while stack:
        symbol = stack.pop()
        if symbol in parts:
            stack += reversed(parts[symbol])
        else:
            pieces.append(symbol)
    return pieces
