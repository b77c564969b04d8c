"""What the page evaluates is what the planner says, to 1e-9: machines, widths, batches, contexts, kinds of model."""

import json
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest

from twostroke.explain.what_if import what_if_of
from twostroke.roofline.hardware import HardwareSpec
from twostroke.roofline.planned_model import PlannedModel, find_planned
from twostroke.roofline.planner import Plan, Prediction, Scenario, make_plan
from twostroke.roofline.target import Target, find_target

mini_racer = pytest.importorskip("py_mini_racer")

HERE = Target(
    "here",
    "cpu",
    HardwareSpec("here", ((1 << 20, 2e11), (1 << 26, 9e10), (1 << 28, 3e10)), {"16bit": 5e11, "f32": 3e11}),
    16 << 30,
    None,
    None,
    "as given",
    is_here=True,
)
# Dense and untied; windows, sinks and experts; latents; recurrent states; windows of another kind.
MODELS = ("llama-3.1-8b", "gpt-oss-20b", "deepseek-v3", "qwen3-next-80b-a3b", "gemma-3-4b")
MACHINES = ("here", "H100 SXM", "RTX 4090", "Apple M4 Max (40-core GPU)", "Raspberry Pi 5", "MI300X")
CHOICES = ((1, 1), (1, 700), (3, 33), (9, 600), (64, 5000))  # batch, context
OWN_WIDTHS = (None, 16, 32)  # for which this engine has types, so that the planner counts its blocks


def evaluated(data: dict[str, Any], choices: list[dict[str, int]]) -> list[dict[str, Any]]:
    """By the page's own script, in V8."""
    script = resources.files("twostroke.explain").joinpath("evaluate.js").read_text("utf-8")
    engine = mini_racer.MiniRacer()
    engine.eval(f"{script}\nvar data = {json.dumps(data)};")
    found = engine.eval(f"JSON.stringify({json.dumps(choices)}.map(choice => evaluate(data, choice)))")
    results: list[dict[str, Any]] = json.loads(found)
    return results


def check_stroke(page: dict[str, Any], plan: Prediction, name: str) -> None:
    known = {
        "seconds": plan.total,
        "low": plan.low,
        "high": plan.high,
        "memory": plan.seconds.memory,
        "compute": plan.seconds.compute,
        "overhead": plan.seconds.overhead,
        "flops": plan.work.flops,
        "weight_bytes": plan.work.weight_bytes + plan.work.expert_bytes,
        "kv_bytes": plan.work.kv_bytes,
        "intensity": plan.work.intensity,
    }
    assert {key: page[key] for key in known} == pytest.approx(known, rel=1e-9), name
    assert page["bound"] == plan.seconds.bound, name


def check(page: dict[str, Any], plan: Plan, name: str, memory_rel: float | None) -> None:
    check_stroke(page["decode"], plan.decode, name)
    assert (page["prefill"] is None) == (plan.prefill is None)
    if plan.prefill is not None:
        check_stroke(page["prefill"], plan.prefill, name)
    assert page["engine"] == plan.efficiency.name.partition("/")[0]
    if memory_rel is None:
        return
    assert page["memory"]["total"] == pytest.approx(plan.memory.total_bytes, rel=memory_rel), name
    assert page["memory"]["capacity"] == plan.memory.capacity_bytes
    assert page["memory"]["fits"] is plan.memory.fits


def formatted(model: PlannedModel, bits: int | None) -> PlannedModel:
    return model if bits is None else model.in_format(f"{bits}bpw")


@pytest.mark.parametrize("name", MODELS)
def test_the_page_gives_the_planner_s_figures(name: str) -> None:
    model = find_planned(name)
    data = json.loads(json.dumps(what_if_of(model, HERE, Scenario(prompt=700, answer=1))))
    names = [machine["name"] for machine in data["machines"]]
    cases = [
        (machine, width, *CHOICES[(width + at) % len(CHOICES)])
        for at, machine in enumerate(MACHINES)
        for width in range(len(data["widths"]))
    ]
    targets = {machine: HERE if machine == "here" else find_target(machine) for machine in MACHINES}
    formats = [formatted(model, width["bits"]) for width in data["widths"]]
    choices = [
        {"machine": names.index(machine), "width": width, "batch": batch, "context": context}
        for machine, width, batch, context in cases
    ]
    for found, (machine, width, batch, context) in zip(evaluated(data, choices), cases, strict=True):
        bits = data["widths"][width]["bits"]
        plan = make_plan(formats[width], targets[machine], Scenario(prompt=context, answer=1, batch=batch))
        rel = 1e-9 if machine != "here" else 0.01 if bits in OWN_WIDTHS else None  # scratch is not linear in context
        check(found, plan, f"{machine}, {bits} bits, {batch} x {context}", rel)


def test_machines_without_known_arithmetic_have_no_prefill() -> None:
    bare = replace(HERE, spec=replace(HERE.spec, flops={}), is_here=False)
    data = what_if_of(find_planned("llama-3.1-8b"), bare, Scenario())
    (found,) = evaluated(data, [{"machine": 0, "width": 0, "batch": 2, "context": 100}])
    assert found["prefill"] is None
    assert found["decode"]["compute"] == 0


def test_the_choices_are_those_that_are_offered() -> None:
    data = what_if_of(find_planned("llama-3.1-8b"), HERE, Scenario())
    assert [width["bits"] for width in data["widths"]] == [None, 4, 5, 6, 8, 16, 32, 64]
    assert data["most_batch"] == 64
    assert data["machines"][0]["name"] == "here"
    assert len(data["machines"]) > 200
    assert len(json.dumps(data)) < 400_000
