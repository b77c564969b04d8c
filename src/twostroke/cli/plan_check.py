"""`plan --check`: the plan's own scenario run here, predicted beside measured. Owns the comparison.

It is run as `bench` runs it. Where neighbours share a machine's memory, that may be half as fast as when it was probed;
so it is probed right before and right after, and the plan is also made with the rate at which the weights were read
between the runs.
"""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from statistics import median

import click

from twostroke.bench.cell import Pass, Scenario
from twostroke.bench.in_process import passes
from twostroke.cli.figures import bytes_text, table
from twostroke.errors import ConfigError
from twostroke.explain.figures import time_text
from twostroke.llm.llm import LLM
from twostroke.roofline.hardware import ReadPoint
from twostroke.roofline.memory import peak_rss_bytes
from twostroke.roofline.planner import Plan, Prediction, again, make_plan
from twostroke.roofline.target import this_machine

_PROBE_S, _RUNS, _READ_S = 3.0, 3, 0.1
_LONG_S = 30.0  # where a pass takes longer it is timed once, and nothing runs before it: its start is little of it


@dataclass(frozen=True, slots=True)
class Measured:
    """What the run took: prefill of all prompts, a decode step, the most memory resident; and the rate of memory."""

    prefill_s: float
    tpot_s: float
    rss_bytes: int
    byte_s: float


def check_plan(plan: Plan, as_json: bool) -> None:
    """Run it and print the comparison. Raises ConfigError for a plan of other hardware."""
    if not plan.target.is_here:
        raise ConfigError("--check runs here: it needs --hardware this")
    threads = plan.target.spec.num_threads or 1
    _probe_apart(threads)
    plan = again(plan, target=this_machine())
    measured = _measure(plan)
    _probe_apart(threads)
    after = _probed(again(plan, target=this_machine()))
    spec = replace(plan.target.spec, read_bandwidth=_at_rate(plan, measured.byte_s))
    then = make_plan(plan.model, replace(plan.target, spec=spec), plan.scenario)
    size = (plan.memory.total_bytes, plan.memory.total_bytes, float(measured.rss_bytes))
    rows = {
        "prefill_s": (_prefill_s(plan), _prefill_s(then), measured.prefill_s),
        "tpot_s": (plan.tpot_s, then.tpot_s, measured.tpot_s),
        "memory_bytes": size,
    }
    if as_json:
        fields = {
            name: {"predicted": was, "predicted_then": so, "measured": now, "ratio": was / now, "ratio_then": so / now}
            for name, (was, so, now) in rows.items()
        }
        rates = {"probed": _probed(plan), "then": measured.byte_s, "after": after}
        click.echo(json.dumps({"model": plan.model.name, "check": fields, "read_byte_s": rates}))
        return
    then_text = f"at {measured.byte_s / 1e9:.0f} GB/s"
    lines = [("", "predicted", then_text, "measured", "predicted/measured", then_text)]
    for (name, (was, so, now)), label in zip(rows.items(), ("prefill", "a token", "memory"), strict=True):
        text = bytes_text if name == "memory_bytes" else time_text
        lines.append((label, text(was), text(so), text(now), f"{was / now:.2f}", f"{so / now:.2f}"))
    for line in table(lines):
        click.echo(line)
    click.echo(f"predicted ranges: prefill {_range(plan.prefill)}, a token {_range(plan.decode)}")
    before, during, later = (rate / 1e9 for rate in (_probed(plan), measured.byte_s, after))
    click.echo(f"memory was read at {before:.0f} GB/s right before, {during:.0f} meanwhile, {later:.0f} right after")


def _probe_apart(num_threads: int) -> None:
    """Probe in a process of its own, whose memory does not count as this one's."""
    code = f"from twostroke.roofline.probe import probe; probe({num_threads}, budget_s={_PROBE_S})"
    subprocess.run([sys.executable, "-c", code], check=True)


def _range(found: Prediction | None) -> str:
    return "not known" if found is None else f"{time_text(found.low)} to {time_text(found.high)}"


def _probed(plan: Plan) -> float:
    """Bytes per second that the plan counts on for its weights."""
    return plan.target.spec.bytes_per_s_at(plan.model.weight_bytes)


def _at_rate(plan: Plan, byte_s: float) -> tuple[ReadPoint, ...]:
    """The probed curve with all sets that no cache holds read as much slower or faster as the weights were."""
    change, points = byte_s / _probed(plan), plan.target.spec.read_bandwidth
    return tuple((size, rate * change if size > points[0][0] else rate) for size, rate in points)


def _prefill_s(plan: Plan) -> float:
    return plan.prefill.total if plan.prefill is not None else float("nan")


def _measure(plan: Plan) -> Measured:
    """As `bench` times it: medians over passes. Memory is read before and after each, for it may be twice as fast at
    one time as at another."""
    scenario = plan.scenario
    cell = Scenario(scenario.prompt, scenario.answer, scenario.batch, 0)
    long = _prefill_s(plan) + scenario.answer * plan.tpot_s > _LONG_S
    own = plan.model.weights if plan.model.is_reformatted else None
    found: list[Pass] = []
    with LLM(
        plan.model.name, context=cell.context, max_batch=cell.batch, kv=scenario.kv, weights=own, speculation=False
    ) as llm:
        read = [llm.probe_weights(_READ_S)]
        for one in passes(llm, cell, 1 if long else _RUNS, uncounted=0 if long else 1):
            found.append(one)
            read.append(llm.probe_weights(_READ_S))
    return Measured(
        median(one.prefill.seconds for one in found if one.prefill is not None),
        median(one.decode.seconds / one.decode.steps for one in found if one.decode is not None),
        peak_rss_bytes(),
        median(read),
    )
