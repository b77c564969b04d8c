"""How experts are chosen, against the definition written out for each row."""

import math
from dataclasses import replace

import numpy as np
import pytest

from twostroke.program.builder import Builder
from twostroke.program.experts import Routed
from twostroke.program.op import ProgramError
from twostroke.program.reference import ReferenceExecutor
from twostroke.program.routing import route
from twostroke.program.values import Weight

BIAS = np.array([0.3, -0.2, 0.1, 0.5, -0.4, 0.0, 0.2, -0.1])
WEIGHT = Weight("bias", (8,))
KINDS = {
    "sigmoid": Routed(8, 3, "sigmoid_topk", scale=1.5),
    "sigmoid, shares": Routed(8, 3, "sigmoid_topk", renormalize=True),
    "sigmoid in groups by bias": Routed(
        8, 3, "sigmoid_topk", renormalize=True, scale=2.5, num_groups=4, top_groups=2, choice_bias=WEIGHT
    ),
    "softmax in groups": Routed(8, 3, "softmax_topk", scale=16.0, num_groups=4, top_groups=2),
    "softmax": Routed(8, 3, "softmax_topk"),
    "softmax of the chosen": Routed(8, 3, "topk_softmax"),
}


def chosen(logits: list[float], routed: Routed) -> dict[int, float]:
    """Weight by expert."""
    total = sum(math.exp(x) for x in logits)
    sigmoid = [1 / (1 + math.exp(-x)) for x in logits]
    scores = sigmoid if routed.kind == "sigmoid_topk" else [math.exp(x) / total for x in logits]
    keys = [score + (BIAS[i] if routed.choice_bias else 0) for i, score in enumerate(scores)]
    size, allowed = 8 // routed.num_groups, range(8)
    if routed.num_groups > 1:
        count = 2 if routed.choice_bias else 1
        ranks = [sum(sorted(keys[g * size : (g + 1) * size], reverse=True)[:count]) for g in range(routed.num_groups)]
        best = sorted(range(routed.num_groups), key=lambda g: -ranks[g])[: routed.top_groups]
        allowed = [i for i in range(8) if i // size in best]
    ids = sorted(allowed, key=lambda i: -keys[i])[: routed.top_k]
    share = sum(scores[i] for i in ids) if routed.renormalize or routed.kind == "topk_softmax" else 1.0
    return {i: scores[i] / share * routed.scale for i in ids}


@pytest.mark.parametrize("routed", KINDS.values(), ids=KINDS.keys())
def test_each_kind(routed: Routed) -> None:
    logits = 2 * np.random.default_rng(0).standard_normal((50, 8))
    ids, weights = route(logits, routed, BIAS if routed.choice_bias else None)
    for row in range(50):
        found = dict(zip(ids[row].tolist(), weights[row].tolist(), strict=True))
        assert found == pytest.approx(chosen(logits[row].tolist(), routed))


def test_a_weight_may_scale_an_expert_or_multiply_its_input() -> None:
    """silu(gate(w x)) * up(w x), summed, is not w times what x gives."""
    rng = np.random.default_rng(1)
    scales = Weight("scales", (4,))
    outputs, arrays = {}, {"table.weight": rng.standard_normal((9, 6))}
    for name, routed in (
        ("plain", Routed(4, 1, "sigmoid_topk")),
        ("input", Routed(4, 1, "sigmoid_topk", weighs_input=True)),
        ("scaled", Routed(4, 1, "sigmoid_topk", expert_scales=scales)),
    ):
        b = Builder()
        x = b.embed("table", 9, 6)
        b.output("y", b.experts(x, b.linear(x, "router", 4), "ffn", 5, routed))
        program = b.build()
        for weight in program.weights.values():
            arrays.setdefault(weight.name, rng.standard_normal(weight.shape))
        executor = ReferenceExecutor(program, arrays.__getitem__, np.float64)
        outputs[name] = executor.forward(executor.new_state(), range(9))["y"]
    logits = arrays["table.weight"] @ arrays["router.weight"].T
    best = logits.argmax(axis=1)
    np.testing.assert_allclose(outputs["scaled"], outputs["plain"] * arrays["scales"][best][:, None])
    weights = 1 / (1 + np.exp(-logits.max(axis=1)))
    for row, expert in enumerate(best):
        gate, up, down = (arrays[f"ffn_{part}_exps.weight"][expert] for part in ("gate", "up", "down"))
        read = weights[row] * arrays["table.weight"][row]
        z = gate @ read
        np.testing.assert_allclose(outputs["input"][row], down @ (z / (1 + np.exp(-z)) * (up @ read)))


@pytest.mark.parametrize(
    "changes", [{"num_groups": 3}, {"num_groups": 4, "top_groups": 1}, {"choice_bias": Weight("bias", (7,))}]
)
def test_misfits_are_refused(changes: dict[str, object]) -> None:
    b = Builder()
    x = b.embed("table", 9, 6)
    routed = replace(KINDS["sigmoid"], **changes)
    with pytest.raises(ProgramError, match=r"groups|chooses|one an expert"):
        b.experts(x, b.linear(x, "router", 8), "ffn", 5, routed)
