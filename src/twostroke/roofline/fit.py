"""Which models of the catalogue run on given hardware, at which width and how fast. Owns the order of quality.

Best first means: more parameters used by a token first, for a model of a kind answers better the larger it is; of one
model the widest format that fits. Mixtures count as the geometric mean of all and active parameters, a usual rule of
thumb (Mistral's, for Mixtral). Nothing here was measured by asking models questions.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from twostroke.errors import ContextLengthError, UnsupportedModelError
from twostroke.roofline.model_catalogue import CatalogueModel, load_models
from twostroke.roofline.planned_model import PlannedModel, of_catalogue
from twostroke.roofline.planner import Plan, Scenario, make_plan
from twostroke.roofline.target import Target

_LEAST_BITS = 3.5  # no width below has fewer on average
WIDTHS = ("bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m")


@dataclass(frozen=True, slots=True)
class Fitting:
    """A model that fits, in the widest format that does and is fast enough."""

    plan: Plan
    quality: float

    @property
    def headroom_bytes(self) -> float:
        """Memory left."""
        return (self.plan.memory.capacity_bytes or math.inf) - self.plan.memory.total_bytes


def find_fitting(
    target: Target,
    scenario: Scenario,
    *,
    min_tok_s: float = 0.0,
    models: Mapping[str, CatalogueModel] | None = None,
) -> list[Fitting]:
    """All models that fit with this scenario and reach the speed, best first."""
    found = [
        Fitting(plan, quality(model, plan.model))
        for model in (load_models() if models is None else models).values()
        if (plan := _widest(model, target, scenario, min_tok_s)) is not None
    ]
    return sorted(found, key=lambda each: -each.quality)


def quality(model: CatalogueModel, planned: PlannedModel) -> float:
    """Parameters, as far as they count for quality."""
    total = model.parameters or planned.num_parameters
    return math.sqrt(total * (model.active_parameters or total))


def _widest(model: CatalogueModel, target: Target, scenario: Scenario, min_tok_s: float) -> Plan | None:
    """The plan of the widest format that fits, None where none does."""
    if target.memory_bytes is not None and model.parameters * _LEAST_BITS / 8 > target.memory_bytes:
        return None
    try:
        published = of_catalogue(model)
    except UnsupportedModelError:
        return None
    if published.is_encoder:
        return None
    for weights in _widths(published):
        planned = published if weights == published.weights else published.in_format(weights)
        if target.memory_bytes is not None and planned.weight_bytes > target.memory_bytes:
            continue
        try:
            plan = make_plan(planned, target, scenario)
        except ContextLengthError:
            return None
        if plan.memory.fits is not False and plan.tok_s >= min_tok_s:
            return plan
    return None


def _widths(model: PlannedModel) -> Iterator[str]:
    """The published format and those narrower."""
    yield model.weights
    if model.weights == "bf16":
        yield from WIDTHS[1:]
