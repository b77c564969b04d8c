"""What a request cost, from the ledger: usage, and the `twostroke` object of a response. Owns their form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twostroke.engine.account import PhaseTotals
from twostroke.roofline.bound import attain
from twostroke.roofline.hardware import HardwareSpec
from twostroke.server.job import Choice


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one response. A prompt counts once, however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int = 0

    @classmethod
    def of(cls, choices: Sequence[Choice], choices_a_prompt: int) -> "Usage":
        first = choices[::choices_a_prompt]
        return cls(
            sum(choice.request.num_prompt for choice in first),
            sum(choice.completion_tokens for choice in choices),
            sum(choice.cached_tokens for choice in first),
            sum(choice.reasoning_tokens for choice in choices),
        )

    def fields(self) -> dict[str, Any]:
        """As the API has them."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        }


def timings(choices: Sequence[Choice], seed: int, hardware: HardwareSpec | None) -> dict[str, Any]:
    """The ledger's account of all choices together, once they have ended; names are those of `run --json`.

    Waits are the first choice's to see the event: `queue_s` and `ttft_s` are the shortest, `total_s` the longest.
    """
    summaries = [choice.summary for choice in choices if choice.summary is not None]
    tpots = [summary.tpot_s for summary in summaries if summary.tpot_s is not None]
    return {
        "seed": seed,
        "queue_s": min((s.queue_s for s in summaries if s.queue_s is not None), default=None),
        "ttft_s": min((s.ttft_s for s in summaries if s.ttft_s is not None), default=None),
        "tpot_s": sum(tpots) / len(tpots) if tpots else None,
        "total_s": max((s.total_s for s in summaries), default=None),
        "num_preemptions": sum(s.num_preemptions for s in summaries),
        "prefill": phase_fields([s.prefill for s in summaries], hardware),
        "decode": phase_fields([s.decode for s in summaries], hardware),
    }


def roof_fractions(choices: Sequence[Choice], hardware: HardwareSpec) -> list[float]:
    """The share of its roof that each phase reached which ran."""
    account = timings(choices, 0, hardware)
    shares = [account[phase]["roof_fraction"] for phase in ("prefill", "decode")]
    return [share for share in shares if share is not None]


def phase_fields(totals: Sequence[PhaseTotals], hardware: HardwareSpec | None) -> dict[str, Any]:
    """One phase's shares, added up, and where they stand under the roofs where those are known."""
    names = ("tokens", "seconds", "flops", "weight_bytes", "kv_bytes", "activation_bytes")
    fields: dict[str, Any] = {name: sum(getattr(total, name) for total in totals) for name in names}
    seconds = fields["seconds"]
    moved = fields["weight_bytes"] + fields["kv_bytes"] + fields["activation_bytes"]
    fields["tok_s"] = fields["tokens"] / seconds if seconds else 0.0
    fields["achieved_flop_s"] = fields["flops"] / seconds if seconds else 0.0
    fields["achieved_byte_s"] = moved / seconds if seconds else 0.0
    if hardware is not None:
        steps = max(1, sum(total.steps for total in totals))
        read = (fields["weight_bytes"] + fields["kv_bytes"]) / steps
        reached = attain(fields["flops"], moved, seconds, working_set_bytes=max(1.0, read), hardware=hardware)
        fields["bound"], fields["roof_fraction"] = reached.bound, reached.roof_fraction
    return fields
