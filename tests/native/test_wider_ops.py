"""The ops of the wider families in all their forms: norms, gates, activations, factors, caps, sinks, magnitudes.

Against float64, bit for bit against scalar code, fused and not, on tokens and on output rows.
"""

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from tests.native.in_memory import MemorySource, chunk, float_matrix, forward, native, random_matrix, reference, run
from tests.native.test_rows import ROWS, check, program_of, source_of

from twostroke.native.executor import available_isas
from twostroke.program.builder import Builder
from twostroke.program.elementwise import Activation, GatedActivation
from twostroke.program.ops import Linear, Normalize
from twostroke.program.passes import fuse
from twostroke.program.program import Program
from twostroke.program.values import RopeSpec, Value
from twostroke.weights.tensor_types import TensorType

ISAS = available_isas()
Build = Callable[[Builder, Value, Value], Value]
NORMS: dict[str, Build] = {
    "rms": lambda b, x, y: b.rms_norm(x, "norm", 1e-5),
    "rms of 1 + w": lambda b, x, y: b.rms_norm(x, "norm", 1e-6, offset=1.0),
    "layer": lambda b, x, y: b.layer_norm(x, "norm", 1e-5),
    "layer without bias": lambda b, x, y: b.layer_norm(x, "norm", 1e-5, bias=False),
}


def normed_source(dim: int, weights: int | None = None) -> MemorySource:
    """As `source_of`, with a bias, and with rows that are far from 0 beside their spread."""
    source = source_of(dim)
    x = source.values("x.weight").copy()
    x[5:9] += 100 * x[5:9].std(axis=1, keepdims=True)
    rng = np.random.default_rng(dim + 1)
    vectors = {f"norm.{part}": rng.standard_normal(weights or dim) for part in ("weight", "bias")}
    return MemorySource({**source.tensors, "x.weight": x, **vectors})


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dim", [1, 5, 16, 33, 96, 577])
@pytest.mark.parametrize("norm", NORMS)
def test_norms(norm: str, dim: int, late: bool) -> None:
    """Rows far from 0 lose what float32 loses: 100 spreads, 7 bits."""
    relative = 1e-5 if norm.startswith("layer") else 1e-6
    if dim == 1 and norm.startswith("layer"):
        relative = 1e-3  # x - mean is 0, and what remains of it is divided by the root of eps
    check(program_of(dim, NORMS[norm], late=late), normed_source(dim), relative)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize(("dim", "group"), [(1, 1), (12, 4), (48, 16), (60, 20), (99, 33), (256, 64)])
def test_norms_of_groups(dim: int, group: int, offset: float, late: bool) -> None:
    """Each stretch by itself, all with the same weights."""
    build: Build = lambda b, x, y: b.rms_norm(x, "norm", 1e-5, offset=offset, group_dim=group)  # noqa: E731
    check(program_of(dim, build, late=late), normed_source(dim, group), 1e-6)


def linears_after(norm: str, kinds: tuple[TensorType, ...]) -> tuple[Program, MemorySource]:
    """Linears with biases of different kinds that share a norm."""
    dim = 37 if TensorType.Q8_0 not in kinds else 64

    def build(b: Builder, x: Value, y: Value) -> Value:
        h = NORMS[norm](b, x, y)
        return b.add(b.linear(h, "w0", 21, bias=True), b.linear(h, "w1", 21))

    source = normed_source(dim)
    weights = {
        f"w{i}.weight": random_matrix(kind, 21, dim, i)
        if kind is TensorType.Q8_0
        else float_matrix(kind, ones(21, dim))
        for i, kind in enumerate(kinds)
    }
    return program_of(dim, build), MemorySource({**source.tensors, **weights, "w0.bias": np.linspace(-1, 1, 21)})


def check_fusion(program: Program, source: MemorySource) -> None:
    """Fused or not: the same bits, on every instruction set."""
    for isa in ISAS:
        plain = run(native(program, source, isa, fused=False), chunk(range(ROWS)))[1]
        fused = run(native(program, source, isa), chunk(range(ROWS)))[1]
        np.testing.assert_array_equal(fused, plain, err_msg=isa)


def ones(rows: int, cols: int) -> np.ndarray:
    """Of random signs: exact in every float type."""
    return np.random.default_rng(rows).choice([-1.0, 1.0], (rows, cols))


@pytest.mark.parametrize("kinds", [(TensorType.F32, TensorType.F16), (TensorType.Q8_0, TensorType.BF16)], ids=str)
@pytest.mark.parametrize("norm", NORMS)
def test_norms_taken_into_linears(norm: str, kinds: tuple[TensorType, ...]) -> None:
    """One op after fusion, with the bits of two."""
    program, source = linears_after(norm, kinds)
    assert not any(isinstance(op, Normalize) for op in fuse(program).ops)
    check(program, source, 1e-4)
    check_fusion(program, source)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dim", [7, 16, 100])
@pytest.mark.parametrize("activation", get_args(GatedActivation))
def test_gates(activation: GatedActivation, dim: int, late: bool) -> None:
    """Gates from -3,000 to 3,000: beyond every limit and where e^x overflows."""
    check(program_of(dim, lambda b, x, y: b.gated(x, y, activation), late=late), source_of(dim), 1e-6)


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.BF16, TensorType.Q8_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("activation", get_args(GatedActivation))
def test_gates_taken_into_linears(activation: GatedActivation, kind: TensorType) -> None:
    """A gated linear has the bits of two linears and a gate."""
    program = program_of(64, lambda b, x, y: b.gated(b.linear(y, "g", 37), b.linear(y, "u", 37), activation))
    assert [op.gate for op in fuse(program).ops if isinstance(op, Linear)] == [activation]
    source = source_of(64)
    matrices = {f"{name}.weight": random_matrix(kind, 37, 64, seed) for seed, name in enumerate("gu")}
    source = MemorySource({**source.tensors, **matrices})
    check(program, source, 1e-3 if kind is TensorType.Q8_0 else 1e-5)
    check_fusion(program, source)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dim", [7, 16, 100])
@pytest.mark.parametrize("activation", get_args(Activation))
def test_activations(activation: Activation, dim: int, late: bool) -> None:
    check(program_of(dim, lambda b, x, y: b.activate(x, activation), late=late), source_of(dim), 1e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("activation", get_args(Activation))
def test_activations_element_by_element(activation: Activation, isa: str) -> None:
    """Absolutely within 5e-7 near 0, where a curve has its bend, and relatively within 1e-6 far from it."""
    x = np.concatenate([np.linspace(-12, 12, 481), [-1e15, -1e4, -100.0, -88.5, 88.5, 100.0, 1e4, 1e15]])
    source = MemorySource({"x.weight": np.tile(x, (ROWS, 1)), "y.weight": np.zeros((ROWS, len(x)))})
    program = program_of(len(x), lambda b, x, y: b.activate(x, activation))
    expected = forward(reference(program, source), [0])
    got = run(native(program, source, isa), chunk([0]))[1]
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=5e-7)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dim", [1, 7, 16, 100])
@pytest.mark.parametrize("factor", [0.1, -3.0, 45.254833995939045])
def test_scale(factor: float, dim: int, late: bool) -> None:
    check(program_of(dim, lambda b, x, y: b.scale(x, factor), late=late), source_of(dim), 2.0**-22)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dim", [1, 7, 16, 100])
@pytest.mark.parametrize("cap", [0.5, 30.0])
def test_soft_cap(cap: float, dim: int, late: bool, isa: str) -> None:
    """Within 2e-7 of the cap: nothing is beyond it, and values of any size stay in order."""
    program, source = program_of(dim, lambda b, x, y: b.soft_cap(x, cap), late=late), source_of(dim)
    ids = range(ROWS)
    expected = forward(reference(program, source), ids)
    got = run(native(program, source, isa, num_threads=2), chunk(ids))[1]
    assert np.abs(got - expected).max() < 2e-7 * cap
    assert np.abs(got).max() <= cap
    np.testing.assert_array_equal(got, run(native(program, source), chunk(ids))[1])


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dim", [1, 7, 16, 100])
def test_sigmoid_gate(dim: int, late: bool) -> None:
    """One gate a row, from -3,000 to 3,000."""

    def build(b: Builder, x: Value, y: Value) -> Value:
        return b.sigmoid_gate(y, b.linear(x, "gate", 1))

    source = MemorySource({**source_of(dim).tensors, "gate.weight": np.eye(1, dim)})
    check(program_of(dim, build, late=late), source, 1e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "op", ["gated", "activate", "scale", "soft_cap", "sigmoid_gate", "norm", "layer_norm", "group"]
)
def test_nan_is_not_lost(op: str, isa: str) -> None:
    """A NaN comes out where it went in: of norms in all of its row or group, else in its element alone."""
    builds: dict[str, list[Build]] = {
        "gated": [lambda b, x, y, a=a: b.gated(x, y, a) for a in get_args(GatedActivation)],
        "activate": [lambda b, x, y, a=a: b.activate(x, a) for a in get_args(Activation)],
        "scale": [lambda b, x, y: b.scale(x, 3.0)],
        "soft_cap": [lambda b, x, y: b.soft_cap(x, 3.0)],
        "sigmoid_gate": [lambda b, x, y: b.sigmoid_gate(x, b.linear(y, "gate", 1))],
        "norm": [NORMS["rms"], NORMS["rms of 1 + w"]],
        "layer_norm": [NORMS["layer"], NORMS["layer without bias"]],
        "group": [lambda b, x, y: b.rms_norm(x, "norm", 1e-5, group_dim=11)],
    }
    reach = {"norm": range(33), "layer_norm": range(33), "group": range(11, 22)}.get(op, [13])
    source = normed_source(33, 11 if op == "group" else None)
    x = source.values("x.weight").copy()
    x[2, 13] = np.nan
    source = MemorySource({**source.tensors, "x.weight": x, "gate.weight": np.eye(1, 33)})
    for build in builds[op]:
        got = run(native(program_of(33, build), source, isa), chunk([1, 2, 3]))[1]
        assert np.isfinite(got[[0, 2]]).all()
        assert np.flatnonzero(np.isnan(got[1])).tolist() == list(reach)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("value", ["up", "gate"])
def test_nan_in_the_other_value_is_not_lost(value: str, isa: str) -> None:
    """Also past the limits of gpt-oss's gate, and of a gate that is one number a row."""
    source = source_of(33)
    y = source.values("y.weight").copy()
    y[2, 0] = np.nan
    source = MemorySource({**source.tensors, "y.weight": y, "gate.weight": np.eye(1, 33)})
    builds: list[Build] = [lambda b, x, y, a=a: b.gated(x, y, a) for a in get_args(GatedActivation)]
    if value == "gate":
        builds = [lambda b, x, y: b.sigmoid_gate(x, b.linear(y, "gate", 1))]
    for build in builds:
        got = run(native(program_of(33, build), source, isa), chunk([1, 2, 3]))[1]
        assert np.isfinite(got[[0, 2]]).all()
        assert np.isnan(got[1]).sum() == (33 if value == "gate" else 1)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("magnitude", [0.5, 1.0, 1.3465735902799727])
def test_rope_with_a_magnitude(magnitude: float, pairing: str, isa: str) -> None:
    """Only what is rotated is scaled: the rest of a head stays as it is."""
    spec = RopeSpec(12, 10000.0, pairing, (1.0, 1.5, 2.0, 4.0, 8.0, 8.0), magnitude=magnitude)  # type: ignore[arg-type]
    program, source = program_of(60, lambda b, x, y: b.rope(y, 20, spec)), source_of(60)
    expected = forward(reference(program, source), range(ROWS))
    got = run(native(program, source, isa), chunk(range(ROWS)))[1]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)
    heads, plain = got.reshape(ROWS, 3, 20), source.values("y.weight").reshape(ROWS, 3, 20)
    np.testing.assert_array_equal(heads[..., 12:], plain[..., 12:])
    sizes, before = (np.linalg.norm(array[..., :12], axis=-1) for array in (heads, plain))
    np.testing.assert_allclose(sizes, magnitude * before, rtol=1e-6)
    np.testing.assert_array_equal(got, run(native(program, source), chunk(range(ROWS)))[1])
