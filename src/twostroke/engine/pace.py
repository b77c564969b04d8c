"""Pace: how much prefill a step may carry beside running answers. Owns the estimate of time; picks no request.

A step's time is what its decode rows alone would take, their bytes over the bytes a second of latest steps, plus the
FLOPs of its other rows over the FLOP/s that latest steps did beside decode. Bytes and FLOPs are the program's cost;
the rates are the ledger's.
"""

import math
from collections.abc import Sequence

from twostroke.engine.ledger import StepRecord
from twostroke.engine.plan import Chunk
from twostroke.program.cost import CostModel
from twostroke.program.phase import Phase

_SLOWDOWN = 2.25  # without a target of its own, a mixed step takes so many times what its decode rows alone take
_NEWEST = 0.25  # weight of the latest step in a rate
_LEAST_SHARE = 0.05  # of a mixed step's time that is put down to prefill, though decode alone was slower once


class Pace:
    """Told of each step by `observe`. `target_s`: seconds a step may take while answers run; None derives it."""

    def __init__(self, cost: CostModel, target_s: float | None = None) -> None:
        self._cost = cost
        self._target_s = target_s
        self._decode_byte_s: float | None = None
        self._mixed_flop_s: float | None = None
        self._prefill_flop_s: float | None = None

    def decode_seconds(self, decode: Sequence[Chunk]) -> float | None:
        """What these rows alone would take; None where no step of decode alone was seen yet."""
        return None if self._decode_byte_s is None else self._cost.step(decode).bytes / self._decode_byte_s

    def target_seconds(self, decode: Sequence[Chunk]) -> float | None:
        """What a step with these decode rows may take; None where that is not known, or nobody waits for it."""
        if not decode or self._target_s is not None:
            return self._target_s if decode else None
        alone = self.decode_seconds(decode)
        return None if alone is None else _SLOWDOWN * alone

    def flops(self, decode: Sequence[Chunk]) -> float:
        """FLOPs that a step may carry beside its decode rows; infinity where nothing bounds them."""
        target, flop_s = self.target_seconds(decode), self._mixed_flop_s or self._prefill_flop_s
        if target is None or flop_s is None:
            return math.inf
        return max(0.0, target - (self.decode_seconds(decode) or 0.0)) * flop_s

    def observe(self, decode: Sequence[Chunk], record: StepRecord) -> None:
        """Learns from a step that had these decode rows among others."""
        if any(chunk.drafts for chunk in decode):
            return  # not what these answers' rows alone take
        if not decode:
            sums = record.phases.get(Phase.PREFILL)
            if sums is not None:
                self._prefill_flop_s = _mix(self._prefill_flop_s, sums.totals().flops / record.seconds)
        elif sum(sums.rows for sums in record.phases.values()) == len(decode):
            self._decode_byte_s = _mix(self._decode_byte_s, record.phases[Phase.DECODE].totals().bytes / record.seconds)
        elif (alone := self.decode_seconds(decode)) is not None:
            flops = sum(sums.totals().flops for sums in record.phases.values()) - self._cost.step(decode).flops
            seconds = max(record.seconds - alone, _LEAST_SHARE * record.seconds)
            self._mixed_flop_s = _mix(self._mixed_flop_s, flops / seconds)


def _mix(rate: float | None, newest: float) -> float:
    return newest if rate is None else (1 - _NEWEST) * rate + _NEWEST * newest
