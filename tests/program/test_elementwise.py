"""Ops on elements and norms of every kind against their formulas, written with `math`, and what they cost."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.program.samples import random_ids, random_weights

from twostroke.program import ops
from twostroke.program.builder import Builder
from twostroke.program.cost import ChunkShape, CostModel, Storage
from twostroke.program.elementwise import Activation, GatedActivation
from twostroke.program.ops import ProgramError
from twostroke.program.passes import fuse
from twostroke.program.program import Program
from twostroke.program.reference import ReferenceExecutor
from twostroke.program.values import Norm, Value, Weight

DIM = 12


def program_of(build: Callable[[Builder, Value, Value], Value]) -> Program:
    """Two tables looked up by token id, and `build` over them."""
    b = Builder()
    x, y = b.embed("x", 50, DIM), b.embed("y", 50, DIM)
    b.output("out", b.output_rows(build(b, x, y)))
    return b.build()


def run(program: Program, dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The two inputs, scaled up to where activations saturate, and the output."""
    weights = random_weights(program)
    scaled = {name: 9 * weights(name) for name in ("x.weight", "y.weight")}
    executor = ReferenceExecutor(program, lambda name: scaled[name] if name in scaled else weights(name), dtype)
    ids = random_ids(30)
    out = executor.forward(executor.new_state(), ids)["out"]
    assert out.dtype == dtype
    return scaled["x.weight"][ids], scaled["y.weight"][ids], out


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def swiglu_oai(gate: float, up: float) -> float:
    gate, up = min(gate, 7.0), min(max(up, -7.0), 7.0)
    return gate * sigmoid(1.702 * gate) * (up + 1)


ACTIVATIONS: dict[Activation, Callable[[float], float]] = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu2": lambda x: max(x, 0.0) ** 2,
}
GATED: dict[GatedActivation, Callable[[float, float], float]] = {
    "silu": lambda gate, up: ACTIVATIONS["silu"](gate) * up,
    "gelu": lambda gate, up: ACTIVATIONS["gelu"](gate) * up,
    "gelu_tanh": lambda gate, up: ACTIVATIONS["gelu_tanh"](gate) * up,
    "swiglu_oai": swiglu_oai,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: Activation) -> None:
    x, _, out = run(program_of(lambda b, x, y: b.activate(x, activation)))
    np.testing.assert_allclose(out, np.vectorize(ACTIVATIONS[activation])(x), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("activation", GATED)
def test_gated_activations(activation: GatedActivation) -> None:
    x, y, out = run(program_of(lambda b, x, y: b.gated(x, y, activation)))
    assert np.abs(x).max() > 8  # beyond the limits of swiglu_oai
    assert np.abs(y).max() > 8
    np.testing.assert_allclose(out, np.vectorize(GATED[activation])(x, y), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("activation", GATED)
def test_a_fused_gate_keeps_its_activation(activation: GatedActivation) -> None:
    program = program_of(lambda b, x, y: b.gated(b.linear(x, "gate", 20), b.linear(x, "up", 20), activation))
    fused = fuse(program)
    assert [op.kind for op in fused.ops] == ["embed", "embed", "linear", "output_rows"]
    np.testing.assert_allclose(run(fused)[2], run(program)[2], rtol=1e-12, atol=1e-12)


def test_scale_soft_cap_and_sigmoid_gate() -> None:
    x, _, out = run(program_of(lambda b, x, y: b.scale(x, 2.5)))
    np.testing.assert_array_equal(out, x * 2.5)
    x, _, out = run(program_of(lambda b, x, y: b.soft_cap(x, 3.0)))
    np.testing.assert_allclose(out, np.vectorize(lambda each: 3 * math.tanh(each / 3))(x), rtol=1e-12)
    program = program_of(lambda b, x, y: b.sigmoid_gate(x, b.linear(y, "gate", 1)))
    x, y, out = run(program)
    gate = np.vectorize(sigmoid)(y @ random_weights(program)("gate.weight").T)
    np.testing.assert_allclose(out, x * gate, rtol=1e-12)


def test_what_does_nothing_adds_no_op() -> None:
    assert [op.kind for op in program_of(lambda b, x, y: b.soft_cap(b.scale(x, 1.0), None)).ops] == [
        "embed",
        "embed",
        "output_rows",
    ]


def norm_by_hand(row: np.ndarray, weight: np.ndarray, bias: np.ndarray | float, is_layer: bool) -> np.ndarray:
    mean = sum(row) / len(row) if is_layer else 0.0
    root = math.sqrt(sum((value - mean) ** 2 for value in row) / len(row) + 0.1)
    return (row - mean) / root * weight + bias


@pytest.mark.parametrize("has_bias", [True, False])
def test_layer_norm(has_bias: bool) -> None:
    program = program_of(lambda b, x, y: b.layer_norm(x, "norm", 0.1, bias=has_bias))
    x, _, out = run(program)
    weights = random_weights(program)
    bias = weights("norm.bias") if has_bias else 0.0
    for row, found in zip(x, out, strict=True):
        np.testing.assert_allclose(found, norm_by_hand(row, weights("norm.weight"), bias, True), rtol=1e-11)


@pytest.mark.parametrize("group_dim", [None, 4, 12])
def test_rms_norm_of_groups_with_an_offset(group_dim: int | None) -> None:
    program = program_of(lambda b, x, y: b.rms_norm(x, "norm", 0.1, offset=1.0, group_dim=group_dim))
    x, _, out = run(program)
    weight = random_weights(program)("norm.weight") + 1.0
    assert weight.shape == (group_dim or DIM,)
    for row, found in zip(x, out, strict=True):
        groups = np.split(row, DIM // (group_dim or DIM))
        expected = np.concatenate([norm_by_hand(group, weight, 0.0, False) for group in groups])
        np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_a_norm_of_heads_is_not_taken_into_a_linear() -> None:
    program = program_of(lambda b, x, y: b.linear(b.rms_norm(x, "norm", 0.1, group_dim=4), "matrix", 8))
    assert [op.kind for op in fuse(program).ops] == ["embed", "embed", "norm", "linear", "output_rows"]
    layer = program_of(lambda b, x, y: b.linear(b.layer_norm(x, "norm", 0.1), "matrix", 8))
    fused = fuse(layer)
    assert [op.kind for op in fused.ops] == ["embed", "embed", "linear", "output_rows"]
    np.testing.assert_allclose(run(fused)[2], run(layer)[2], rtol=1e-12, atol=1e-12)
    assert set(fused.weights) == set(layer.weights)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_op_keeps_its_type(dtype: type) -> None:
    def everything(b: Builder, x: Value, y: Value) -> Value:
        for activation in ACTIVATIONS:
            x = b.layer_norm(b.activate(x, activation), f"norm_{activation}", 1e-5)
        for gated in GATED:
            y = b.rms_norm(b.gated(x, y, gated), f"heads_{gated}", 1e-5, offset=1.0, group_dim=4)
        return b.sigmoid_gate(b.soft_cap(b.scale(y, 0.3), 2.0), b.linear(x, "gate", 1))

    run(program_of(everything), dtype)


NORM = Norm(Weight("n", (DIM,)), 1e-5)
MISFITS = {
    "a group that does not divide": (ops.Normalize("z", "x", Norm(Weight("n", (5,)), 1e-5), 5), "groups of 5"),
    "a weight of a row for groups": (ops.Normalize("z", "x", NORM, 4), "does not scale"),
    "a bias of another size": (
        ops.Normalize("z", "x", Norm(Weight("n", (DIM,)), 1e-5, "layer", Weight("b", (4,)))),
        "does not scale",
    ),
    "a gate of an output row": (ops.SigmoidGate("z", "x", "y"), "neither one gate a row"),
    "no cap": (ops.SoftCap("z", "x", 0.0), "soft cap"),
}


@pytest.mark.parametrize(("op", "message"), MISFITS.values(), ids=MISFITS.keys())
def test_misfits_are_refused(op: ops.Op, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        Program((ops.Embed("x", Weight("table", (50, DIM))), ops.OutputRows("y", "x"), op), {}).values  # noqa: B018


@pytest.mark.parametrize(
    ("build", "flops", "weight_bytes"),
    [
        (lambda b, x, y: b.scale(x, 2.0), DIM, 0),
        (lambda b, x, y: b.soft_cap(x, 2.0), 3 * DIM, 0),
        (lambda b, x, y: b.activate(x, "gelu"), 4 * DIM, 0),
        (lambda b, x, y: b.gated(x, y, "gelu"), 5 * DIM, 0),
        (lambda b, x, y: b.layer_norm(x, "n", 1e-5), 7 * DIM, 2 * DIM * 2),
        (lambda b, x, y: b.rms_norm(x, "n", 1e-5, group_dim=4), 4 * DIM, 4 * 2),
    ],
)
def test_costs(build: Callable[[Builder, Value, Value], Value], flops: int, weight_bytes: int) -> None:
    program = program_of(build)
    cost = CostModel(program, Storage(dict.fromkeys(program.weights, 16.0))).step([ChunkShape(0, 7, 0)])
    tables = 7 * 2 * DIM * 2
    assert (cost.flops, cost.weight_bytes) == (7 * flops, weight_bytes + tables)
