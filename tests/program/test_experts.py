"""Mixtures of experts: against loops over rows and experts, and what a step is expected to read."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from tests.program.samples import random_ids, random_weights

from twostroke.program import ops
from twostroke.program.builder import Builder
from twostroke.program.cost import ChunkShape, CostModel, Storage, Unit, measure, total_weight_bytes
from twostroke.program.experts import Routed
from twostroke.program.ops import ProgramError
from twostroke.program.passes import fuse
from twostroke.program.program import Program
from twostroke.program.reference import ReferenceExecutor
from twostroke.program.values import Weight

DIM, FFN, COUNT = 6, 10, 5


def program_of(routed: Routed, *, bias: bool = False, activation: ops.GatedActivation = "silu") -> Program:
    b = Builder()
    x = b.embed("table", 50, DIM)
    router = b.linear(x, "router", routed.num_experts)
    b.output("out", b.output_rows(b.experts(x, router, "ffn", FFN, routed, activation=activation, bias=bias)))
    return b.build()


def shares_by_hand(logits: np.ndarray, routed: Routed) -> dict[int, float]:
    """Weight of each chosen expert."""
    chosen = sorted(range(len(logits)), key=lambda expert: (-logits[expert], expert))[: routed.top_k]
    among = range(len(logits)) if routed.kind == "softmax_topk" and not routed.renormalize else chosen
    total = sum(math.exp(logits[expert]) for expert in among)
    return {expert: routed.scale * math.exp(logits[expert]) / total for expert in chosen}


ROUTES = [
    Routed(COUNT, 2, "softmax_topk"),
    Routed(COUNT, 3, "softmax_topk", renormalize=True),
    Routed(COUNT, 2, "topk_softmax", scale=2.5),
    Routed(COUNT, COUNT, "softmax_topk"),
    Routed(COUNT, 1, "topk_softmax"),
]


@pytest.mark.parametrize("routed", ROUTES, ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_experts_are_their_definition(routed: Routed, bias: bool) -> None:
    program = program_of(routed, bias=bias)
    weights = random_weights(program)
    executor = ReferenceExecutor(program, weights, np.float64)
    ids = random_ids(20)
    found = executor.forward(executor.new_state(), ids)["out"]
    matrices = {name: weights(f"ffn_{name}_exps.weight") for name in ("gate", "up", "down")}
    biases = {
        name: weights(f"ffn_{name}_exps.bias") if bias else np.zeros(matrix.shape[:2])
        for name, matrix in matrices.items()
    }
    for row, token in enumerate(ids):
        x = weights("table.weight")[token]
        expected = np.zeros(DIM)
        for expert, share in shares_by_hand(weights("router.weight") @ x, routed).items():
            gate, up = (matrices[name][expert] @ x + biases[name][expert] for name in ("gate", "up"))
            inner = gate / (1 + np.exp(-gate)) * up
            expected += share * (matrices["down"][expert] @ inner + biases["down"][expert])
        np.testing.assert_allclose(found[row], expected, rtol=1e-10, atol=1e-12)


def test_equal_logits_choose_the_lower_ids() -> None:
    program = program_of(Routed(COUNT, 2, "softmax_topk", renormalize=True))
    weights = random_weights(program)

    def equal(name: str) -> np.ndarray:
        return np.zeros((COUNT, DIM)) if name == "router.weight" else weights(name)

    first_two = {name: weights(name)[:2] for name in program.weights if "exps" in name}
    only = program_of(Routed(2, 2, "topk_softmax"))
    outs = []
    for which, source in (
        (program, equal),
        (only, lambda name: first_two.get(name, equal(name)[:2] if "router" in name else weights(name))),
    ):
        executor = ReferenceExecutor(which, source, np.float64)
        outs.append(executor.forward(executor.new_state(), random_ids(9))["out"])
    np.testing.assert_allclose(outs[0], outs[1], rtol=1e-12)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    program = fuse(program_of(ROUTES[0], activation="swiglu_oai"))
    executor = ReferenceExecutor(program, random_weights(program), np.float64)
    ids = random_ids(20)
    whole = executor.forward(executor.new_state(), ids)["out"]
    alone = [executor.forward(executor.new_state(), ids[row : row + 1])["out"][0] for row in range(20)]
    np.testing.assert_allclose(whole, alone, rtol=1e-12)


def test_the_cost_counted_by_hand() -> None:
    """Of 5 experts a row chooses 2: one row reads 2, three rows 5 (1 - 0.6^3) of them."""
    program = program_of(ROUTES[0], bias=True)
    storage = Storage({name: 8.0 if "exps" in name else 0.0 for name in program.weights})
    each = 3 * DIM * FFN + 2 * FFN + DIM  # bytes of an expert
    assert total_weight_bytes(program, storage) == COUNT * each
    model = CostModel(program, storage)
    assert model.step([ChunkShape(0, 1, 0)]).weight_bytes == pytest.approx(2 * each)
    three = model.step([ChunkShape(0, 1, 0), ChunkShape(7, 2, 0)])
    assert three.weight_bytes == pytest.approx(5 * (1 - 0.6**3) * each)
    a_row = 2 * (2 * 3 * DIM * FFN + 2 * FFN + DIM + 5 * FFN + 2 * DIM) + 4 * COUNT + 2 * COUNT * DIM
    assert three.flops == 3 * a_row
    assert model.step([]).weight_bytes == 0


def test_the_expected_union_of_experts_is_what_random_choices_give() -> None:
    rng = random.Random(0)
    for num_experts, top_k, rows in ((8, 2, 1), (8, 2, 5), (64, 6, 20), (4, 4, 3)):
        sizes = [
            len({expert for _ in range(rows) for expert in rng.sample(range(num_experts), top_k)}) for _ in range(2000)
        ]
        expected = measure(Unit.EXPERTS, (num_experts, top_k), (ChunkShape(0, rows, 0),))
        assert sum(sizes) / len(sizes) == pytest.approx(expected, rel=0.03)


GATE, DOWN = Weight("g", (COUNT, FFN, DIM)), Weight("d", (COUNT, DIM, FFN))
GOOD = ops.Experts("z", "x", "r", (GATE, GATE, DOWN), None, Routed(COUNT, 2, "topk_softmax"), "silu")
BIASES = (Weight("gb", (COUNT, FFN)), Weight("ub", (COUNT, FFN)), Weight("db", (COUNT, FFN)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"router": "x"}, "logit for each"),
        ({"routed": Routed(COUNT, 0, "topk_softmax")}, "chooses 0 of 5"),
        ({"routed": Routed(COUNT, 6, "topk_softmax")}, "chooses 6 of 5"),
        ({"matrices": (Weight("g", (FFN, DIM)), GATE, DOWN)}, "not a matrix an expert"),
        ({"matrices": (GATE, DOWN, DOWN)}, "matrices that multiply"),
        ({"matrices": (GATE, GATE, GATE)}, "matrices that multiply"),
        ({"biases": BIASES}, "does not fit"),
    ],
)
def test_misfits_are_refused(changes: dict[str, object], message: str) -> None:
    before = (
        ops.Embed("x", Weight("table", (50, DIM))),
        ops.Linear(("r",), "x", (Weight("router", (COUNT, DIM)),), (None,)),
    )
    assert Program((*before, GOOD), {}).values["z"].dim == DIM
    with pytest.raises(ProgramError, match=message):
        Program((*before, replace(GOOD, **changes)), {}).values  # type: ignore[arg-type]  # noqa: B018
