"""Speculation: whether drafts pay, by what steps of so many rows took. Owns that judgement; verifies nothing.

Drafted tokens are computed as rows of the same step as the latest token. The model samples at each row as it would have
without drafts; a draft that equals the sample saves a step, the rows after the first that does not are thrown away. So
the text is the same, and all that is to be decided is how many more rows a step are worth their time.
"""

from collections.abc import Sequence

from twostroke.engine.lookup import PromptLookup
from twostroke.engine.plan import StepPlan
from twostroke.engine.request import Request

MOST_RUNNING = 4  # with more answers at once a step's rows are no longer nearly free
_LEAST_GAIN = 1.05  # of tokens a second
_NEWEST = 0.2  # weight of the latest step in what steps take
_TOO_OLD = 500  # steps after which a measurement is made again


class Speculation:
    """Makes drafts for requests that run few at a time, where they promise to pay."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._seconds: dict[int, float] = {}  # of steps of decode rows alone, by their number
        self._measured_at: dict[int, int] = {}
        self._num_steps = 0

    def drafts(self, request: Request, num_running: int, most: int) -> Sequence[int]:
        """Tokens to try after the request's latest, `most` at most, beside `num_running` rows without any."""
        if not self._looks_at(request, num_running):
            return ()
        if request.lookup is None:
            request.lookup = PromptLookup()
        draft = request.lookup.draft(request.tokens[: request.num_tokens])
        room = request.max_tokens - request.num_generated - 1  # one token comes without a draft
        most = min(most, room, len(draft))
        return draft[: self.best_length(request.lookup.acceptance, num_running, most)] if most > 0 else ()

    def prepare(self, request: Request, num_running: int) -> None:
        """Makes `may_draft` quick, of the token after the request's latest."""
        if self._looks_at(request, num_running) and request.lookup is not None:
            request.lookup.prepare(request.tokens[: request.num_tokens])

    def may_draft(self, request: Request, num_running: int, token_id: int) -> bool:
        """Whether `drafts` is to be asked once `token_id` has followed."""
        if not self._looks_at(request, num_running):
            return False
        return request.lookup is None or request.lookup.has_draft(token_id)

    def _looks_at(self, request: Request, num_running: int) -> bool:
        return self._enabled and num_running <= MOST_RUNNING and request.constraint is None

    def best_length(self, acceptance: Sequence[float], num_running: int, most: int) -> int:
        """Drafted tokens, 0 to `most`, that promise most tokens a second. A number of rows not seen yet is taken to
        cost what fewer do, and so is tried."""
        alone = self._cost(num_running)
        if alone is None:
            return 0
        best, best_gain, tokens = 0, _LEAST_GAIN, float(num_running)
        for length in range(1, most + 1):
            tokens += acceptance[length - 1]
            gain = tokens / num_running / ((self._cost(num_running + length) or alone) / alone)
            if gain > best_gain:
                best, best_gain = length, gain
        return best

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """Learns from a step, where it had decode rows alone."""
        if plan.num_decode == len(plan.chunks) <= MOST_RUNNING:
            self._num_steps += 1
            rows = sum(chunk.length for chunk in plan.chunks)
            before = self._seconds.get(rows, seconds)
            self._seconds[rows] = before + _NEWEST * (seconds - before)
            self._measured_at[rows] = self._num_steps

    def _cost(self, rows: int) -> float | None:
        """Seconds of a step of so many rows: measured, or between those of fewer and more, or that of fewer."""
        known = [n for n in sorted(self._seconds) if n <= MOST_RUNNING or self._is_new(n)]
        fewer, more = [n for n in known if n <= rows], [n for n in known if n >= rows]
        if not fewer:
            return None
        low = self._seconds[fewer[-1]]
        if not more or more[0] == fewer[-1]:
            return low
        share = (rows - fewer[-1]) / (more[0] - fewer[-1])
        return low + share * (self._seconds[more[0]] - low)

    def _is_new(self, rows: int) -> bool:
        return self._num_steps - self._measured_at[rows] < _TOO_OLD
