"""Claims: "MODEL at 45 tok/s on HARDWARE in fp16". Owns reading one and judging whether physics allows it.

A claim is impossible where its bytes would have to move faster than the memory's nominal bandwidth, or its FLOPs be
done above the peak; it is doubtful where it lies outside the band of measured efficiencies.
"""

import re
from dataclasses import dataclass
from typing import Literal

from twostroke.errors import ConfigError
from twostroke.roofline.planned_model import find_planned
from twostroke.roofline.planner import Plan, Scenario, make_plan
from twostroke.roofline.step_time import arithmetic_peak
from twostroke.roofline.target import find_target

Verdict = Literal["impossible", "above what is measured", "plausible", "below what is measured"]
_FORM = re.compile(
    r"(?P<model>\S.*?)\s+(?:at|does|reaches|runs at)\s+(?P<rate>[\d.,]+)\s*"
    r"(?:tok(?:ens?)?\s*(?:/|per )\s*s(?:ec(?:ond)?)?)"
    r"\s+on\s+(?:an?\s+|the\s+)?(?P<hardware>.+?)(?:\s+(?:in|with|at)\s+(?P<weights>[\w.+-]+))?\s*\.?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A claim judged. `limit_tok_s` is what the roofs allow at most, `reasons` say why in words."""

    plan: Plan
    claimed_tok_s: float
    limit_tok_s: float
    verdict: Verdict
    reasons: tuple[str, ...]


def judge(text: str, scenario: Scenario) -> Judgement:
    """Read and judge a claim about one stream's decode speed; `scenario` has its context.

    Raises ConfigError where the sentence has another form, and what `find_planned` and `find_target` raise.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f'a claim reads "MODEL at 45 tok/s on HARDWARE in fp16", not {text[:120]!r}')
    claimed = _number(found["rate"])
    target = find_target(found["hardware"])
    plan = make_plan(find_planned(found["model"], found["weights"]), target, scenario)
    work, spec = plan.decode.work, target.spec
    bandwidth = spec.bytes_per_s_at(work.read_bytes)
    memory_limit = bandwidth / work.read_bytes * plan.scenario.tokens_a_step
    compute_limit = arithmetic_peak(spec, "8bit") / work.flops
    limit = min(memory_limit, compute_limit)
    low, high = (plan.scenario.tokens_a_step / seconds for seconds in (plan.decode.high, plan.decode.low))
    size, rate = work.read_bytes / 1e9, bandwidth / 1e9
    reasons = [
        f"a token reads {size:.2f} GB: {claimed:g} tok/s would be {size * claimed:,.0f} GB/s,"
        f" and {target.name} has {rate:,.0f}",
    ]
    if plan.memory.fits is False:
        need, have = plan.memory.total_bytes / 1e9, (plan.memory.capacity_bytes or 0) / 1e9
        reasons.append(f"it does not fit: {need:.1f} GB are needed, {have:.1f} are there")
    reasons.append(f"predicted is {plan.tok_s:.1f} tok/s ({low:.1f} to {high:.1f})")
    return Judgement(plan, claimed, limit, _verdict(plan, claimed, limit, low, high), tuple(reasons))


def _verdict(plan: Plan, claimed: float, limit: float, low: float, high: float) -> Verdict:
    if claimed > limit or plan.memory.fits is False:
        return "impossible"
    if claimed > high:
        return "above what is measured"
    return "plausible" if claimed >= low else "below what is measured"


def _number(text: str) -> float:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        raise ConfigError(f"{text!r} is no number of tokens per second") from None
    if value <= 0:
        raise ConfigError("a claim is of more than 0 tok/s")
    return value
