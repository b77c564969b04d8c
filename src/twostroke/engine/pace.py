"""Pace: how much prefill a step may carry beside running answers. Owns the policy; what steps take is `step_time`'s."""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from twostroke.engine.ledger import StepRecord
from twostroke.engine.plan import Chunk
from twostroke.engine.step_time import StepTime
from twostroke.program.cost import CostModel

_LEAST_SLOWDOWN = 2.0  # without a target of its own, a step takes so many times what its decode rows alone take
_LEAST_SHARE = 0.2  # of a step's time that is prefill's, however low the target
_MOST_MIXED = 16  # steps in a row that have prompt rows: then one has none, and shows what the answers' rows alone take
_MOST_UNLEARNT = 128  # steps that wait to be learnt from
_LEAST_WORTH = 3.0  # seconds of prompt rows beside one of passing over the weights for them


class Room(NamedTuple):
    """What a step has for rows beside its decode rows: seconds, infinity where nobody waits for it.

    `target_s` is what the whole step should take at most; None where nobody waits for it.
    """

    seconds: float
    target_s: float | None


class Pace:
    """`target_s`: seconds a step may take while answers run; None shares its time between answers and prompts."""

    def __init__(self, cost: CostModel, target_s: float | None = None) -> None:
        self.step_time = StepTime(cost)
        self._target_s = target_s
        self._unlearnt: deque[StepRecord] = deque(maxlen=_MOST_UNLEARNT)
        self._num_mixed = _MOST_MIXED  # since a step of decode rows alone was seen

    @property
    def wants_decode_alone(self) -> bool:
        """The next step with decode rows should have no others."""
        return self._num_mixed >= _MOST_MIXED

    def observe(self, record: StepRecord, *, is_mixed: bool) -> None:
        """A step ran; `is_mixed`: it had other rows beside its decode rows.

        Nothing is learnt from it until somebody asks: answers that run alone are not made to wait for it.
        """
        self._unlearnt.append(record)
        self._num_mixed = self._num_mixed + 1 if is_mixed else 0

    def room(self, decode: Sequence[Chunk], num_lagging: int) -> Room:
        """Beside these decode rows, for so many requests that lag behind.

        All who are served share the time equally, as they would in turn, but prompts have half of it at least.
        Prompt rows are never so few that the pass over the weights is more than a quarter of their time, and prompts
        always have a part of the step: a bound that cannot be met is not held to at all costs, and all get on.
        """
        while self._unlearnt:
            self.step_time.observe(self._unlearnt.popleft())
        if not decode or not self.step_time.is_known:
            return Room(math.inf, None)
        alone = self.step_time.of_decode(decode)
        slowdown = max(_LEAST_SLOWDOWN, 1 + num_lagging / len(decode))
        target = slowdown * alone if self._target_s is None else self._target_s
        left = max(target - alone, alone * _LEAST_SHARE / (1 - _LEAST_SHARE))
        a_pass = self.step_time.of_pass()
        return Room(max(left - a_pass, _LEAST_WORTH * a_pass), target)
