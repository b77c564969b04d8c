"""Ledger: what every step did, cost and took, by phase and by request. The only record; whoever shows figures reads it.

Attribution. FLOPs, KV and activation bytes of a chunk are its own, exactly. What a step moves once for all its rows,
the weights, is divided among chunks by their rows (the output head's by their outputs), so that phases and requests
add up to the step. A step's seconds are divided by the chunks' FLOPs: a step that mixes phases has many rows, and
arithmetic is what it waits for; in a step of decode rows alone FLOPs grow with each row's context as its bytes do.

Those shares are of work. What a user waits for is measured apart, on the clock: time in the queue, to the first token
(TTFT), and between tokens (TPOT). The prefill stroke ends with the first token; decode tokens are those after it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twostroke.engine.account import Account, PhaseTotals, Rates
from twostroke.engine.plan import Chunk, StepPlan
from twostroke.engine.request import Request
from twostroke.program.cost import CostModel, Resource
from twostroke.program.phase import Phase


class RequestSummary(NamedTuple):
    """One request's account. Times in seconds; None where the event did not happen.

    cached_tokens  prompt tokens that the prefix cache had when the request first ran
    drafted_tokens, accepted_tokens  tokens tried before they were chosen, and those of them that were then chosen
    queue_s  from submission to the first step that had it; total_s to its end
    ttft_s   from submission to the first new token
    tpot_s   mean time between tokens after the first; None with fewer than two tokens
    prefill, decode  its share of the steps it was in
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    num_preemptions: int
    queue_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    total_s: float
    prefill: PhaseTotals
    decode: PhaseTotals


class StepRecord(NamedTuple):
    """One step: when it started (seconds of the engine's clock), how long it took, and each phase's share of it.

    `target_s` is what the step was meant to take at most where answers ran beside prefill, whose chunk is the rows of
    the phase.
    """

    started: float
    seconds: float
    native_seconds: float
    phases: Mapping[Phase, Account]
    target_s: float | None = None


@dataclass(slots=True)
class _RequestAccount:
    phases: dict[Phase, Account]
    num_seen: int = 0  # rows below were computed before
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None


class Ledger:
    """Running totals, the accounts of live requests, and the latest `num_recent` steps. Its size is bounded."""

    def __init__(self, cost: CostModel, num_recent: int = 1024) -> None:
        self._rates = Rates(cost)
        self._totals = self._by_phase()
        self._requests: dict[Request, _RequestAccount] = {}
        self.recent: deque[StepRecord] = deque(maxlen=num_recent)

    def summary(self, phase: Phase) -> PhaseTotals:
        """Everything that ran in the phase so far."""
        return self._totals[phase].totals()

    def open(self, request: Request) -> None:
        """Starts the request's account."""
        self._requests[request] = _RequestAccount(self._by_phase())

    def is_open(self, request: Request) -> bool:
        """The request's account was opened and not closed."""
        return request in self._requests

    def close(self, request: Request, now: float) -> RequestSummary:
        """Ends the request's account and sums it up."""
        account = self._requests.pop(request)
        since, count = request.submitted_at, request.num_generated
        first, last = account.first_token_at, account.last_token_at
        return RequestSummary(
            prompt_tokens=request.num_prompt,
            completion_tokens=count,
            cached_tokens=request.num_cached,
            drafted_tokens=request.num_drafted,
            accepted_tokens=request.num_accepted,
            num_preemptions=request.num_preemptions,
            queue_s=None if account.scheduled_at is None else account.scheduled_at - since,
            ttft_s=None if first is None else first - since,
            tpot_s=None if first is None or last is None or count < 2 else (last - first) / (count - 1),
            total_s=now - since,
            prefill=account.phases[Phase.PREFILL].totals(),
            decode=account.phases[Phase.DECODE].totals(),
        )

    def record(self, plan: StepPlan, native_seconds: float, started: float, seconds: float) -> None:
        """Enters a step that began at `started` and took `seconds`, `native_seconds` of it inside the executor."""
        step: dict[Phase, Account] = {}
        amounts = self._amounts(plan.chunks)
        for chunk, share, own in zip(plan.chunks, self._time_shares(amounts), amounts, strict=True):
            account = self._requests.get(chunk.request) or _RequestAccount(self._by_phase())  # cancelled meanwhile
            if account.scheduled_at is None:
                account.scheduled_at = started
            end = chunk.start + chunk.length
            if chunk.drafts:
                end = min(end, chunk.request.num_computed)  # rows of drafts that did not come true are no tokens
            tokens = max(0, end - max(chunk.start, account.num_seen))
            account.num_seen = max(account.num_seen, end)
            if chunk.phase not in step:
                step[chunk.phase] = Account(self._rates)
            for sums in (step[chunk.phase], account.phases[chunk.phase]):
                sums.add(own, chunk.length, tokens, seconds * share, native_seconds * share)
            account.phases[chunk.phase].steps += 1
        for phase, sums in step.items():
            sums.steps = 1
            self._totals[phase].add_step(sums)
        self.recent.append(StepRecord(started, seconds, native_seconds, step, plan.target_s))

    def record_token(self, request: Request, now: float) -> None:
        """The request got a new token."""
        account = self._requests[request]
        if account.first_token_at is None:
            account.first_token_at = now
        account.last_token_at = now

    def _by_phase(self) -> dict[Phase, Account]:
        return {phase: Account(self._rates) for phase in Phase}

    def _amounts(self, chunks: Sequence[Chunk]) -> list[list[float]]:
        rows = sum(chunk.length for chunk in chunks)
        outputs = sum(chunk.num_outputs for chunk in chunks) or 1
        return [self._rates.amounts(chunk, chunk.length / rows, chunk.num_outputs / outputs) for chunk in chunks]

    def _time_shares(self, amounts: Sequence[Sequence[float]]) -> list[float]:
        if len(amounts) == 1:
            return [1.0]
        flops = [self._rates.price(Resource.FLOPS, own) for own in amounts]
        total = sum(flops)
        return [own / total for own in flops]
