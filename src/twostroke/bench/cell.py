"""Cell: one combination that `bench MODEL` was asked for, and what it gave. Owns names and medians."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Any

from twostroke.engine.account import PhaseTotals
from twostroke.roofline.bound import Attainment, attain
from twostroke.roofline.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is timed: `batch` requests at a time, each with `depth` tokens in the KV cache already.

    Prefill is timed over `prompt_tokens` more of each, decode over `gen_tokens` after those; either may be 0.
    """

    prompt_tokens: int
    gen_tokens: int
    batch: int
    depth: int

    @property
    def context(self) -> int:
        """Tokens that one request comes to."""
        return self.depth + max(1, self.prompt_tokens) + self.gen_tokens + 1


def scenarios(
    prompt_tokens: Sequence[int], gen_tokens: Sequence[int], batch: Sequence[int], depth: Sequence[int]
) -> Iterator[Scenario]:
    """Every combination, in the order given."""
    for values in product(depth, batch, prompt_tokens, gen_tokens):
        yield Scenario(values[2], values[3], values[1], values[0])


@dataclass(frozen=True, slots=True)
class Pass:
    """One repetition: what the ledger says of both phases, and the mean time to the first token in seconds."""

    prefill: PhaseTotals | None
    decode: PhaseTotals | None
    ttft_s: float | None

    @property
    def prefill_tok_s(self) -> float | None:
        return None if self.prefill is None else self.prefill.tok_s

    @property
    def decode_tok_s(self) -> float | None:
        return None if self.decode is None else self.decode.tok_s

    @property
    def python_fraction(self) -> float | None:
        return None if self.decode is None else 1.0 - self.decode.native_seconds / self.decode.seconds

    @property
    def decode_bytes_per_token(self) -> float | None:
        return None if self.decode is None else self.decode.bytes / self.decode.tokens

    @property
    def flops_per_token(self) -> float | None:
        timed = self.prefill or self.decode
        return None if timed is None else timed.flops / timed.tokens


@dataclass(frozen=True, slots=True)
class Cell:
    """A scenario's passes and what they ran on. Rates and seconds are medians over the passes; None was not timed."""

    scenario: Scenario
    weights: str
    kv: str
    threads: int
    isa: str
    hardware: HardwareSpec | None
    passes: tuple[Pass, ...]
    perplexity: float | None = None
    weight_bytes: int = 0

    @property
    def prefill_tok_s(self) -> float | None:
        return self._median(lambda one: one.prefill_tok_s)

    @property
    def decode_tok_s(self) -> float | None:
        return self._median(lambda one: one.decode_tok_s)

    @property
    def ttft_s(self) -> float | None:
        return self._median(lambda one: one.ttft_s)

    @property
    def python_fraction(self) -> float | None:
        """Time outside the compiled core over the time of the step, of decode steps."""
        return self._median(lambda one: one.python_fraction)

    @property
    def decode_bytes_per_token(self) -> float | None:
        """Weights, KV and activations that move for each token of an answer."""
        return self._median(lambda one: one.decode_bytes_per_token)

    @property
    def flops_per_token(self) -> float | None:
        """Of a prompt's token; of an answer's where no prompt was timed."""
        return self._median(lambda one: one.flops_per_token)

    @property
    def prefill_reached(self) -> Attainment | None:
        return self._reached([one.prefill for one in self.passes])

    @property
    def decode_reached(self) -> Attainment | None:
        return self._reached([one.decode for one in self.passes])

    def spread(self, of: Callable[[Pass], float | None]) -> tuple[float, float] | None:
        """Least and most over the passes."""
        found = self._values(of)
        return (min(found), max(found)) if found else None

    def fields(self) -> dict[str, Any]:
        """The object of `bench --json`: seconds, bytes, rates a second."""
        prefill, decode = self.prefill_reached, self.decode_reached
        return {
            "prompt_tokens": self.scenario.prompt_tokens,
            "gen_tokens": self.scenario.gen_tokens,
            "batch": self.scenario.batch,
            "depth": self.scenario.depth,
            "weights": self.weights,
            "kv": self.kv,
            "weight_bytes": self.weight_bytes,
            "prefill_tok_s": self.prefill_tok_s,
            "decode_tok_s": self.decode_tok_s,
            "decode_bytes_per_token": self.decode_bytes_per_token,
            "flops_per_token": self.flops_per_token,
            "roof_flop_s": next((one.roof_flop_s for one in (prefill, decode) if one), None),
            "roof_byte_s": next((one.roof_byte_s for one in (decode, prefill) if one), None),
            "prefill_roof_fraction": prefill and prefill.roof_fraction,
            "decode_roof_fraction": decode and decode.roof_fraction,
            "ttft_s": self.ttft_s,
            "python_fraction": self.python_fraction,
            "perplexity": self.perplexity,
            "threads": self.threads,
            "isa": self.isa,
            "repeat": len(self.passes),
            "spread": {
                "prefill_tok_s": self.spread(lambda one: one.prefill_tok_s),
                "decode_tok_s": self.spread(lambda one: one.decode_tok_s),
                "ttft_s": self.spread(lambda one: one.ttft_s),
            },
        }

    def _values(self, of: Callable[[Pass], float | None]) -> list[float]:
        return [value for value in map(of, self.passes) if value is not None]

    def _median(self, of: Callable[[Pass], float | None]) -> float | None:
        found = self._values(of)
        return median(found) if found else None

    def _reached(self, phases: Sequence[PhaseTotals | None]) -> Attainment | None:
        """Of the pass in the middle of those that timed the phase."""
        timed = sorted((one for one in phases if one is not None), key=lambda one: one.seconds)
        if not timed or self.hardware is None:
            return None
        one = timed[len(timed) // 2]
        working_set = round((one.weight_bytes + one.kv_bytes) / one.steps)
        return attain(one.flops, one.bytes, one.seconds, working_set_bytes=working_set, hardware=self.hardware)
