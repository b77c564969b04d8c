"""PromptLookup: drafts of what comes next, from what came before in the same request, and how often they come true.

Text repeats itself: code, quotations, JSON. The latest tokens are looked up among the earlier ones, and what followed
there is the draft (Saxena 2023, "Prompt Lookup Decoding"). A draft is judged by the tokens that came, whether it was
tried or not, so that judging costs no step. Decides nothing.
"""

from collections.abc import Sequence

from twostroke.native.batch import IntArray

MOST_DRAFTED = 7  # tokens of a draft
_NEWEST = 0.25  # weight of the latest draft in what is expected, once there are a few


class PromptLookup:
    """Index of every `num_tokens` consecutive tokens of one request.

    `acceptance`, (MOST_DRAFTED,), is how often so far the first, the first two, ... tokens of a draft came true.
    """

    def __init__(self, num_tokens: int = 3) -> None:
        self._length = num_tokens
        self._ends: dict[tuple[int, ...], int] = {}
        self._num_indexed = 0
        self._latest: tuple[int, ...] = ()
        self._judged: tuple[int, list[int]] | None = None  # a draft and where it starts
        self._num_judged = 0
        self.acceptance = [0.0] * MOST_DRAFTED

    def draft(self, tokens: IntArray) -> Sequence[int]:
        """MOST_DRAFTED tokens that followed the latest earlier occurrence of the last ones; none where there is none.

        Where fewer followed, the text repeats itself, and so does the draft. `tokens`, (num_tokens,), are all of the
        request so far; those of the call before are its beginning.
        """
        known = len(tokens)
        self._judge(tokens)
        self._index(tokens)
        found = self._ends.get(tuple(tokens[-self._length :].tolist()))
        if found is None:
            return ()
        followed = tokens[found : found + MOST_DRAFTED].tolist()
        draft = [followed[index % len(followed)] for index in range(MOST_DRAFTED)]
        if self._judged is None:
            self._judged = known, draft
        return draft

    def prepare(self, tokens: IntArray) -> None:
        """Looks at the request's tokens so far, so that `has_draft` is quick."""
        self._index(tokens)
        self._latest = tuple(tokens[1 - self._length :].tolist())

    def has_draft(self, token_id: int) -> bool:
        """Whether there is a draft once this token follows those of `prepare`."""
        return (*self._latest, token_id) in self._ends

    def _index(self, tokens: IntArray) -> None:
        """Where each run of tokens ends, the very last one left out; of equal runs the latest."""
        first, length = self._num_indexed, self._length
        new = tokens[first:].tolist()
        for start in range(len(new) - length):
            self._ends[tuple(new[start : start + length])] = first + start + length
        self._num_indexed = max(first, len(tokens) - length)

    def _judge(self, tokens: IntArray) -> None:
        """Compares the latest draft, once it is known how far it came true."""
        if self._judged is None:
            return
        start, draft = self._judged
        came = tokens[start : start + MOST_DRAFTED].tolist()
        right = next((i for i, (a, b) in enumerate(zip(draft, came, strict=False)) if a != b), len(came))
        if right == len(came) < MOST_DRAFTED:
            return
        self._judged = None
        self._num_judged += 1
        weight = max(_NEWEST, 1 / self._num_judged)
        self.acceptance = [old + weight * ((i < right) - old) for i, old in enumerate(self.acceptance)]
