"""Speculation: whether drafts pay, by what steps of so many rows took. Owns that judgement; verifies nothing.

Drafted tokens are computed as rows of the same step as the latest token. The model samples at each row as it would have
without drafts; a draft that equals the sample saves a step, the rows after the first that does not are thrown away. So
the text is the same, and all that is to be decided is whether more rows a step are worth their time.
"""

from collections.abc import Sequence

from twostroke.engine.lookup import PromptLookup
from twostroke.engine.plan import StepPlan
from twostroke.engine.request import Request

MOST_RUNNING = 4  # with more answers at once a step's rows are no longer nearly free
MOST_DRAFTED = 7  # tokens a request and step
_LEAST_GAIN = 1.05  # of tokens a second
_NEWEST = 0.2  # weight of the latest step in what steps take


class Speculation:
    """Makes drafts for requests that run few at a time, where they promise to pay."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._seconds: dict[int, float] = {}  # of steps of decode rows alone, by their number

    def drafts(self, request: Request, num_running: int, most: int) -> Sequence[int]:
        """Tokens to try after the request's latest, `most` at most, beside `num_running` rows without any."""
        room = request.max_tokens - request.num_generated - 1  # one token comes without a draft
        most = min(most, room, MOST_DRAFTED)
        if not self._enabled or num_running > MOST_RUNNING or most < 1 or request.constraint is not None:
            return ()
        if request.lookup is None:
            request.lookup = PromptLookup()
        found = request.lookup.draft(request.tokens[: request.num_tokens], most)
        if found and not self._pays(request.lookup.acceptance, num_running, len(found)):
            request.lookup.rest()
            return ()
        return found

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """Learns from a step, where it had decode rows alone."""
        if plan.num_decode == len(plan.chunks) <= MOST_RUNNING:
            rows = sum(chunk.length for chunk in plan.chunks)
            before = self._seconds.get(rows, seconds)
            self._seconds[rows] = before + _NEWEST * (seconds - before)

    def _pays(self, acceptance: float, num_running: int, num_drafted: int) -> bool:
        """More tokens a second are to be expected; also where a step of so many rows has not been seen."""
        without, with_drafts = self._seconds.get(num_running), self._seconds.get(num_running + num_drafted)
        if without is None:
            return False
        tokens = sum(acceptance**count for count in range(num_drafted + 1))
        gain = (num_running - 1 + tokens) / num_running
        return with_drafts is None or gain > _LEAST_GAIN * with_drafts / without
