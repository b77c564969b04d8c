"""Metrics of a stage from its records. Owns distributions, rates, and the checks that make a figure doubtful.

What each metric of one request means is `record.py`'s; the definitions are printed with the results.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from twostroke.bench.gate import StageRun
from twostroke.bench.record import Record
from twostroke.bench.slo import Slo
from twostroke.bench.units import time_text

PERCENTILES = (50, 90, 95, 99)
_SIZE_SLACK = 0.05  # of a prompt's length


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution: `count` values, in the unit of what was measured."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Spread | None":
        """None where there is no value; values that are None are left out."""
        found = np.array([value for value in values if value is not None], dtype=float)
        if not found.size:
            return None
        p50, p90, p95, p99 = (float(value) for value in np.percentile(found, PERCENTILES))
        return cls(found.size, float(found.mean()), p50, p90, p95, p99, float(found.min()), float(found.max()))


@dataclass(frozen=True, slots=True)
class Figures:
    """A stage in numbers: seconds, tokens, and rates a second, over measured requests that succeeded.

    `window` is the time from the first of them sent to the last one ended; token counts are sums.
    """

    run: StageRun
    num_requests: int
    num_ok: int
    num_cancelled: int
    errors: dict[str, int]
    error_details: dict[str, str]
    window: float
    ttft: Spread | None
    first_content: Spread | None
    tpot: Spread | None
    itl: Spread | None
    e2e: Spread | None
    prompt_size: Spread | None
    output_size: Spread | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    tokens_per_delta: float | None
    good_share: float | None
    good_per_second: float | None
    doubts: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def requests_per_second(self) -> float:
        return self._rate(self.num_ok)

    @property
    def output_tokens_per_second(self) -> float:
        return self._rate(self.output_tokens)

    @property
    def total_tokens_per_second(self) -> float:
        return self._rate(self.output_tokens + self.prompt_tokens)

    def _rate(self, count: float) -> float:
        return count / self.window if self.window else 0.0


def figures_of(run: StageRun, slo: Slo | None, expected_cached: float = 0.0) -> Figures:
    """Everything about a stage. `expected_cached` is the share of prompt tokens that a cache may rightly have had."""
    measured = run.measured
    good = [record for record in measured if record.succeeded]
    window = _window(good)
    cached = [record.usage.cached for record in good if record.usage.cached is not None]
    num_met = None if slo is None else sum(map(slo.is_met, measured))
    num_ended = sum(not record.cancelled for record in measured)
    errors = Counter(record.error for record in measured if record.error is not None)
    num_deltas = sum(len(record.delta_times) for record in good)
    num_tokens = sum(record.stream_tokens for record in good)
    ttft = Spread.of(record.ttft for record in good)
    itl = Spread.of(gap for record in good for gap in record.gaps)
    return Figures(
        run=run,
        num_requests=len(measured),
        num_ok=len(good),
        num_cancelled=len(measured) - num_ended,
        errors=dict(errors.most_common()),
        error_details={record.error: record.error_detail for record in reversed(measured) if record.error},
        window=window,
        ttft=ttft,
        first_content=Spread.of(record.first_content for record in good),
        tpot=Spread.of(record.tpot for record in good),
        itl=itl,
        e2e=Spread.of(record.e2e for record in good),
        prompt_size=Spread.of(record.usage.prompt for record in good),
        output_size=Spread.of(record.output_tokens for record in good),
        prompt_tokens=sum(record.usage.prompt or 0 for record in good),
        output_tokens=sum(record.output_tokens for record in good),
        cached_tokens=sum(cached) if cached else None,
        tokens_per_delta=num_tokens / num_deltas if num_deltas else None,
        good_share=None if num_met is None else num_met / max(num_ended, 1),
        good_per_second=None if num_met is None else num_met / window if window else 0.0,
        doubts=(*_never_reached(run), *_doubts(good, expected_cached), *_blur(run, itl)),
        faults=tuple(run.lag.faults(ttft.p50, ttft.p99) if run.lag and ttft else ()),
    )


def _window(good: Sequence[Record]) -> float:
    if not good:
        return 0.0
    return max(record.ended or 0.0 for record in good) - min(record.sent or 0.0 for record in good)


def _blur(run: StageRun, itl: Spread | None) -> Iterator[str]:
    """Single gaps are as sharp as the moments of reading are; TPOT, a mean over an answer, is not concerned."""
    if run.lag is not None and itl is not None and run.lag.p99 > itl.p50 / 2:
        yield f"single inter-token gaps are blurred by the generator's own lag, {time_text(run.lag.p99)} at p99"


def _prompt_sizes(good: Sequence[Record]) -> str:
    """Of prompts that were made to a length: that they came out as another. A later turn's prompt holds all before."""
    sizes = [
        (record.usage.prompt, record.asked_prompt)
        for record in good
        if record.turn == 0 and record.usage.prompt and record.asked_prompt
    ]
    found, asked = (sum(each) / max(len(sizes), 1) for each in zip(*sizes, strict=True)) if sizes else (0.0, 0.0)
    if abs(found - asked) <= max(1.0, _SIZE_SLACK * asked):
        return ""
    return f"prompts have {found:,.0f} tokens on average, not the {asked:,.0f} asked for"


def _never_reached(run: StageRun) -> Iterator[str]:
    """That a closed loop had fewer requests than it should have had at a time. After a ramp they need not all count."""
    wanted, count = run.stage.concurrency, len(run.measured)
    if wanted is not None and not run.stage.ramp and not run.was_stopped and 0 < count < wanted:
        yield f"with {count} requests there were never {wanted} at a time"


def _doubts(good: Sequence[Record], expected_cached: float) -> list[str]:
    """What a reader must know before believing the figures."""
    doubts = []
    total = len(good)
    if count := sum(record.is_repeated for record in good):
        doubts.append(f"{count} of {total} prompts were sent before: a prefix cache makes their TTFT too short")
    prompt = sum(record.usage.prompt or 0 for record in good if record.usage.cached is not None)
    cached = sum(record.usage.cached or 0 for record in good)
    if prompt and cached / prompt > expected_cached + 0.05:
        doubts.append(f"{cached / prompt:.0%} of the prompt tokens came from the server's cache")
    if text := _prompt_sizes(good):
        doubts.append(text)
    if count := sum(record.usage.completion is None for record in good):
        doubts.append(f"{count} of {total} answers state no usage: their deltas are counted as tokens")
    if count := sum(record.stream_tokens < len(record.delta_times) for record in good):
        doubts.append(f"{count} of {total} answers state fewer tokens than they have deltas: usage or stream is wrong")
    if count := sum(record.stream_tokens > 1 and record.tpot is None for record in good):
        doubts.append(f"{count} of {total} answers came all at once: they have no TPOT")
    if count := sum(record.stream_tokens < record.output_tokens for record in good):
        doubts.append(f"{count} of {total} answers hide their reasoning: TTFT holds it, TPOT is of the tokens shown")
    if short := [record for record in good if record.output_tokens < (record.asked_output or 0)]:
        mean = sum(record.output_tokens / (record.asked_output or 1) for record in short) / len(short)
        doubts.append(f"{len(short)} of {total} answers ended early, at {mean:.0%} of the length asked for on average")
    return doubts
