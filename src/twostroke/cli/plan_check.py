"""`plan --check`: the plan's own scenario run here, predicted beside measured. Owns the comparison.

Random tokens are run, so that no answer ends early and no prefix is known; the fastest of a few runs is compared, for
what else the machine does only ever makes it slower.
"""

import json
import random
from dataclasses import dataclass

import click

from twostroke.cli.figures import bytes_text, table
from twostroke.errors import ConfigError
from twostroke.explain.figures import time_text
from twostroke.llm.llm import LLM
from twostroke.program.phase import Phase
from twostroke.roofline.memory import peak_rss_bytes
from twostroke.roofline.planner import Plan

_RUNS = 3
_SEED = 20


@dataclass(frozen=True, slots=True)
class Measured:
    """What the run took: prefill of all prompts, a decode step, the most memory resident."""

    prefill_s: float
    tpot_s: float
    rss_bytes: int


def check_plan(plan: Plan, as_json: bool) -> None:
    """Run it and print the comparison. Raises ConfigError for a plan of other hardware."""
    if not plan.target.is_here:
        raise ConfigError("--check runs here: it needs --hardware this")
    measured = _measure(plan)
    prefill = plan.prefill.total if plan.prefill is not None else float("nan")
    rows = {
        "prefill_s": (prefill, measured.prefill_s),
        "tpot_s": (plan.tpot_s, measured.tpot_s),
        "memory_bytes": (plan.memory.total_bytes, float(measured.rss_bytes)),
    }
    if as_json:
        fields = {name: {"predicted": was, "measured": now, "ratio": was / now} for name, (was, now) in rows.items()}
        click.echo(json.dumps({"model": plan.model.name, "check": fields}))
        return
    lines = [("", "predicted", "measured", "predicted/measured")]
    for (name, (was, now)), label in zip(rows.items(), ("prefill", "a token", "memory"), strict=True):
        text = bytes_text if name == "memory_bytes" else time_text
        lines.append((label, text(was), text(now), f"{was / now:.2f}"))
    for line in table(lines):
        click.echo(line)


def _measure(plan: Plan) -> Measured:
    scenario, draw = plan.scenario, random.Random(_SEED)
    own = plan.model.weights if plan.model.is_reformatted else None
    with LLM(
        plan.model.name,
        context=scenario.context,
        max_batch=scenario.batch,
        kv=scenario.kv,
        weights=own,
        speculation=False,
    ) as llm:
        runs = [_run(llm, plan, draw) for _ in range(_RUNS)]
    return Measured(min(first for first, _ in runs), min(each for _, each in runs), peak_rss_bytes())


def _run(llm: LLM, plan: Plan, draw: random.Random) -> tuple[float, float]:
    """Seconds of the prefill of a batch, and of a decode step, as the engine's ledger has them."""
    scenario, vocab = plan.scenario, plan.model.config.vocab_size
    prompts = [[draw.randrange(vocab) for _ in range(scenario.prompt)] for _ in range(scenario.batch)]
    before = {phase: llm.totals(phase) for phase in Phase}
    llm.generate(prompts, max_tokens=scenario.answer, ignore_eos=True, temperature=0.0)
    spent = {phase: llm.totals(phase).seconds - before[phase].seconds for phase in Phase}
    rows = llm.totals(Phase.DECODE).tokens - before[Phase.DECODE].tokens
    return spent[Phase.PREFILL], spent[Phase.DECODE] / rows * scenario.batch
