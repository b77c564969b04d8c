"""What a phase reached in its latest steps. Owns the window; the figures are the ledger's, the roofs the probe's."""

from dataclasses import dataclass

from twostroke.engine.account import Account, PhaseTotals
from twostroke.engine.ledger import StepRecord
from twostroke.program.phase import Phase
from twostroke.roofline.bound import Attainment, attain
from twostroke.roofline.hardware import HardwareSpec

NUM_STEPS = 64


@dataclass(frozen=True, slots=True)
class RecentPhase:
    """A phase's share of its latest steps: `ended` on the engine's clock, `reached` None without roofs."""

    totals: PhaseTotals
    ended: float
    reached: Attainment | None

    @classmethod
    def of(cls, steps: list[StepRecord], phase: Phase, hardware: HardwareSpec | None) -> "RecentPhase | None":
        """Of the last NUM_STEPS steps that have rows of the phase; None where there is none, or it took no time."""
        own = [step for step in steps if phase in step.phases][-NUM_STEPS:]
        summed = Account.sum_of([step.phases[phase] for step in own])
        if summed is None or not summed.seconds:
            return None
        totals = summed.totals()
        ended = own[-1].started + own[-1].seconds
        if hardware is None:
            return cls(totals, ended, None)
        read = (totals.weight_bytes + totals.kv_bytes) / len(own)
        reached = attain(
            totals.flops, totals.bytes, totals.seconds, working_set_bytes=max(1.0, read), hardware=hardware
        )
        return cls(totals, ended, reached)
