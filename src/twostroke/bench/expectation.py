"""Expectation: what the planner predicts for a stage's load. Owns how a load becomes a planner's scenario.

Beside what was measured it says how far the server is from what the model on that hardware should give.
"""

from dataclasses import dataclass

from twostroke.bench.metrics import Figures
from twostroke.errors import TwostrokeError
from twostroke.roofline.planned_model import PlannedModel, find_planned
from twostroke.roofline.planner import Scenario, make_plan
from twostroke.roofline.target import Target, find_target


@dataclass(frozen=True, slots=True)
class Expectation:
    """Predicted, in seconds, with the ends between which 80% of measurements of such a kind lay.

    `batch` is how many requests were under way in the mean; TTFT is that of a request alone.
    """

    subject: str
    batch: int
    tpot: float
    tpot_low: float
    tpot_high: float
    ttft: float | None
    ttft_low: float | None
    ttft_high: float | None


class Expecting:
    """The planner for one model on one hardware. Raises what finding them raises: ModelNotFoundError, ConfigError."""

    def __init__(self, model: str, hardware: str) -> None:
        self._model: PlannedModel = find_planned(model)
        self._target: Target = find_target(hardware)

    def of(self, figures: Figures) -> Expectation | None:
        """None where a stage gave nothing to plan from, or more than the model's context."""
        if figures.prompt_size is None or figures.output_size is None or figures.e2e is None:
            return None
        prompt, answer = round(figures.prompt_size.mean), max(1, round(figures.output_size.mean))
        batch = max(1, round(figures.e2e.mean * figures.num_ok / figures.window))
        cached = min(round((figures.cached_tokens or 0) / figures.num_ok), prompt - 1)
        try:
            alone = make_plan(self._model, self._target, Scenario(prompt, answer, 1, cached=cached))
            plan = make_plan(self._model, self._target, Scenario(prompt, answer, batch, cached=cached))
        except TwostrokeError:
            return None
        first = alone.prefill
        return Expectation(
            f"{self._model.name}, {self._model.weights}, on {self._target.name} with {plan.efficiency.name}",
            batch,
            plan.tpot_s,
            plan.decode.low,
            plan.decode.high,
            first.total if first else None,
            first.low if first else None,
            first.high if first else None,
        )
