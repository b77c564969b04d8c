"""Record: what was seen of one request, and the times that follow from it. Owns the definitions of a request's metrics.

Times are of `time.perf_counter`, in seconds. A delta is a chunk of the stream that brings output of any kind: content,
reasoning, a tool call, a refusal.
"""

from array import array
from dataclasses import dataclass, field
from itertools import pairwise

DEFINITIONS = {
    "ttft": "time to first token: from writing the request to an open connection to the first delta of any kind, "
    "reasoning included",
    "first_content": "the same to the first delta with content, which is what a reader of the answer waits for",
    "tpot": "time per output token after the first: (last delta - first delta) / (tokens in the stream - 1)",
    "itl": "inter-token latency: the gap between one delta and the next; a delta may bring several tokens",
    "e2e": "end to end: from the request sent to the end of its stream",
    "output_tokens": "the server's usage.completion_tokens, hidden reasoning included; deltas where it gives none",
    "throughput": "tokens and requests of measured requests that succeeded, over the time from the first of them sent "
    "to the last one ended",
    "goodput": "measured requests that succeeded within every --slo bound, a second",
    "invalid": "this generator's own lateness (ticks due every 5 ms) is over 1 ms and 5% of TTFT at p50, or over 3 ms "
    "and 10% of it at p99, or its thread used 90% of a core",
    "percentiles": "over requests (of inter-token latency: over gaps), linear between the two nearest",
}


@dataclass(slots=True)
class Usage:
    """Token counts as the server states them; None where it does not."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None


@dataclass(slots=True, eq=False)
class Record:
    """One request. `error` is a kind, None for success; `cancelled` means that the run was stopped meanwhile."""

    stage: int
    conversation: int
    turn: int
    is_warmup: bool = False
    is_repeated: bool = False
    asked_prompt: int | None = None
    asked_output: int | None = None
    due: float | None = None
    sent: float | None = None
    ended: float | None = None
    delta_times: "array[float]" = field(default_factory=lambda: array("d"))
    first_content_at: float | None = None
    num_reasoning_deltas: int = 0
    usage: Usage = field(default_factory=Usage)
    status: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    error_detail: str = ""
    cancelled: bool = False

    @property
    def succeeded(self) -> bool:
        return self.error is None and not self.cancelled and self.ended is not None

    @property
    def ttft(self) -> float | None:
        return self._since_sent(self.delta_times[0]) if self.delta_times else None

    @property
    def first_content(self) -> float | None:
        return self._since_sent(self.first_content_at)

    @property
    def e2e(self) -> float | None:
        return self._since_sent(self.ended)

    @property
    def output_tokens(self) -> int:
        """All tokens that the server made, those it hides included."""
        return len(self.delta_times) if self.usage.completion is None else self.usage.completion

    @property
    def stream_tokens(self) -> int:
        """The tokens that the deltas bring. Reasoning that is counted but not shown is not among them."""
        hidden = 0 if self.num_reasoning_deltas else self.usage.reasoning or 0
        return self.output_tokens - hidden

    @property
    def tpot(self) -> float | None:
        """None for an answer of one token, or one that came all at once."""
        if self.stream_tokens < 2 or not self.delta_times or self.delta_times[-1] == self.delta_times[0]:
            return None
        return (self.delta_times[-1] - self.delta_times[0]) / (self.stream_tokens - 1)

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in pairwise(self.delta_times)]

    @property
    def send_lag(self) -> float | None:
        """How much later than it was due the request went out; None in the closed loop."""
        return None if self.due is None or self.sent is None else self.sent - self.due

    def _since_sent(self, at: float | None) -> float | None:
        return None if at is None or self.sent is None else at - self.sent
