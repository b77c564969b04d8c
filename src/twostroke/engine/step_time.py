"""StepTime: what steps take, learnt from those that ran. Owns the prices of a step and how they are learnt, no policy.

A step's seconds are taken to be its bytes, one pass over the weights where it has prompt rows (whose kernels may expand
them first), the FLOPs of its decode rows, those of its prompt rows, and those of attention, each at a price of its own;
all times how fast the machine is at the moment. Bytes and FLOPs are the program's cost. Each step corrects all six
numbers, each by its share of the step and by how uncertain it is: a Kalman filter (1960) on their logarithms. So steps
of decode, of prefill and of both teach the same numbers, and a step of a size never seen has a time too.
"""

import math
from collections.abc import Sequence
from operator import mul

import numpy as np

from twostroke.engine.ledger import StepRecord
from twostroke.program.cost import ChunkShape, CostModel
from twostroke.program.phase import Phase

_BYTE, _PASS, _DECODE, _PREFILL, _CONTEXT, _MOMENT = range(6)
_BEFORE = (8.0, 2.0, 1.0, 1.0, 1.0)  # prices beside each other at first: a byte is 8 FLOPs, a pass a quarter of reading
_DRIFT = np.array([1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 3e-3])  # variance a step adds: what else runs here changes fastest
_UNKNOWN = np.array([4.0, 1.0, 4.0, 4.0, 4.0, 0.1])  # variance of what was never seen
_NOISE = 2.5e-3  # variance of one step's time: 5%
_LARGEST_MOVE = 1.0  # of a price's logarithm by one step: what is learnt is only linear nearby
_USUAL = 3.0  # standard deviations beyond which a step counts for less: something else ran


class StepTime:
    """Seconds of steps. Nothing is known before the first."""

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self._weights = cost.step((ChunkShape(0, 1, 1),)).weight_bytes
        self._prices: list[float] = []
        self._covariance = np.diag(_UNKNOWN)

    @property
    def is_known(self) -> bool:
        """A step was seen."""
        return bool(self._prices)

    def of_decode(self, chunks: Sequence[ChunkShape]) -> float:
        """Of a step with these decode rows alone."""
        cost = self._cost.step(chunks)
        context = self._cost.context_flops(chunks)
        return self._of([cost.bytes, 0.0, cost.flops - context, 0.0, context])

    def of_pass(self) -> float:
        """What a step takes longer for having prompt rows, however few."""
        return self._of([0.0, self._weights, 0.0, 0.0, 0.0])

    def added(self, chunk: ChunkShape) -> float:
        """What a step takes longer for having these rows, beside the pass."""
        cost = self._cost.step((chunk,))
        context = self._cost.context_flops((chunk,))
        flops = [cost.flops - context, 0.0] if chunk.phase is Phase.DECODE else [0.0, cost.flops - context]
        return self._of([cost.kv_bytes + cost.activation_bytes, 0.0, *flops, context])

    def observe(self, record: StepRecord) -> None:
        """Learns from a step."""
        amounts = self._amounts(record)
        if not self._prices:
            unit = record.seconds / sum(map(mul, _BEFORE, amounts))
            self._prices = [*(unit * price for price in _BEFORE), 1.0] if unit > 0 else []
            return
        foreseen = self._of(amounts)
        moment = self._prices[_MOMENT]
        shares = np.array([*(moment * part / foreseen for part in map(mul, self._prices, amounts)), 1.0])
        surprise = math.log(record.seconds / foreseen)
        shared = self._covariance @ shares
        variance = float(shares @ shared)
        unusual = max(1.0, abs(surprise) / math.sqrt(variance + _NOISE) / _USUAL)
        gains = shared / (variance + _NOISE * unusual**2)
        gains *= min(1.0, _LARGEST_MOVE / max(1e-9, abs(surprise) * float(np.abs(gains).max())))
        self._prices = [p * math.exp(gain * surprise) for p, gain in zip(self._prices, gains.tolist(), strict=True)]
        self._covariance -= np.outer(gains, shared)
        self._covariance += np.diag(np.where(self._covariance.diagonal() < _UNKNOWN, _DRIFT, 0.0))

    def _of(self, amounts: Sequence[float]) -> float:
        seconds: float = self._prices[_MOMENT] * sum(map(mul, self._prices, amounts))
        return seconds

    def _amounts(self, record: StepRecord) -> list[float]:
        amounts = [0.0] * _MOMENT
        for phase, account in record.phases.items():
            totals, context = account.totals(), account.context_flops()
            amounts[_BYTE] += totals.bytes
            amounts[_DECODE if phase is Phase.DECODE else _PREFILL] += totals.flops - context
            amounts[_CONTEXT] += context
        if Phase.PREFILL in record.phases:
            amounts[_PASS] = self._weights
        return amounts
