"""UnderWay: a step that was started and not yet taken in, and what it took once it is. Owns that sum of times."""

from dataclasses import dataclass
from typing import Any

from twostroke.engine.plan import StepPlan
from twostroke.engine.scheduler import Progress


@dataclass(slots=True)
class UnderWay:
    """Times in seconds of the engine's clock.

    handle   the executor's
    started  when planning began; begun, when the executor was given the step
    more_s   spent on the step before while nothing ran
    left     when the engine's caller went about something else, which is no part of the step; None if it did not
    """

    plan: StepPlan
    handle: Any
    started: float
    begun: float
    more_s: float = 0.0
    left: float | None = None

    def seconds(self, native_s: float, called: float, collected: float, ended: float) -> float:
        """What the step took of which `native_s` inside the executor: called for at `called`, collected, taken in.

        While the executor's threads run, what its caller does costs nothing; but where the caller's is the only one,
        nothing runs before it comes.
        """
        away = called - (called if self.left is None else self.left)
        ran = max(native_s, collected - self.begun - away)
        return self.more_s + (self.begun - self.started) + ran + (ended - collected)


@dataclass(frozen=True, slots=True)
class TakenIn:
    """A step that requests have, and the ledger has not."""

    step: UnderWay
    progress: Progress
    native_s: float
    seconds: float
