"""PromptLookup: drafts of what comes next, from what came before in the same request. Owns the index; decides nothing.

Text repeats itself: code, quotations, JSON. The latest tokens are looked up among the earlier ones, and what followed
there is the draft (Saxena 2023, "Prompt Lookup Decoding").
"""

from twostroke.native.batch import IntArray

_PRIOR = 0.5  # share of drafted tokens that come true, where nothing is known
_NEWEST = 0.25  # weight of the latest draft in that share
_RECOVERY = 0.01  # how fast it returns to the prior while no draft is made, so that another one is tried


class PromptLookup:
    """Index of every `num_tokens` consecutive tokens of one request, and how its drafts have fared."""

    def __init__(self, num_tokens: int = 3) -> None:
        self._length = num_tokens
        self._ends: dict[tuple[int, ...], int] = {}
        self._num_indexed = 0
        self.acceptance = _PRIOR

    def draft(self, tokens: IntArray, most: int) -> list[int]:
        """`most` tokens that followed the latest earlier occurrence of the last ones, or none where there is none.

        Where fewer followed, the text repeats itself, and so does the draft.

        `tokens`, (num_tokens,), are all of the request so far; those of the call before are its beginning.
        """
        known, length = len(tokens), self._length
        if known <= length:
            return []
        new = tokens[self._num_indexed :].tolist()
        for end in range(self._num_indexed + length, known):
            self._ends[tuple(new[end - length - self._num_indexed : end - self._num_indexed])] = end
        self._num_indexed = max(self._num_indexed, known - length)
        found = self._ends.get(tuple(tokens[-length:].tolist()))
        if found is None:
            return []
        followed = tokens[found : found + most].tolist()
        return [followed[index % len(followed)] for index in range(most)]

    def learn(self, num_drafted: int, num_accepted: int) -> None:
        """So many of a draft's tokens were those that the model chose."""
        self.acceptance += _NEWEST * (num_accepted / num_drafted - self.acceptance)

    def rest(self) -> None:
        """No draft was made because none promised to pay."""
        self.acceptance += _RECOVERY * (_PRIOR - self.acceptance)
