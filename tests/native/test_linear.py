"""Linears of every tensor type on every instruction set: against float64, and bit for bit against scalar."""

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import pytest
from tests.native.in_memory import (
    FLOAT_TYPES,
    MemorySource,
    chunk,
    forward,
    native,
    random_matrix,
    reference,
    run,
)

from twostroke.models.load import MATRIX_TYPES
from twostroke.native.executor import available_isas
from twostroke.program.builder import Builder
from twostroke.program.program import Program
from twostroke.weights.tensor_types import TensorType

ISAS = available_isas()
ROW_COUNTS = (1, 2, 3, 7, 8, 9, 27)
VOCAB = 24
# (matrix rows, columns in blocks of the type; of floats, columns as given)
SHAPES = ((1, 1), (5, 3), (16, 1), (37, 4), (130, 2))
FLOAT_COLUMNS = {1: 1, 2: 7, 3: 33, 4: 64}


def linear_program(dim: int, rows: int) -> Program:
    b = Builder()
    b.output("logits", b.linear(b.output_rows(b.embed("x", VOCAB, dim)), "w", rows))
    return b.build()


def inputs(cols: int, seed: int) -> np.ndarray:
    """Rows of very different sizes, one all zero, one with a large outlier in each block."""
    x = np.random.default_rng(seed).standard_normal((VOCAB, cols)) * np.logspace(-6, 6, VOCAB)[:, None]
    x[3] = 0
    x[5, ::32] *= 1000
    return x.astype(np.float32)


@cache
def case(kind: TensorType, rows: int, blocks: int) -> tuple[Program, MemorySource]:
    cols = FLOAT_COLUMNS[blocks] if kind in FLOAT_TYPES else blocks * kind.block_size
    seed = rows * 10 + blocks
    source = MemorySource({"x.weight": inputs(cols, seed), "w.weight": random_matrix(kind, rows, cols, seed)})
    return linear_program(cols, rows), source


def error_bound(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """(rows of x, rows of w): half a step of the 16-bit activations, and float32 rounding of sums.

    A step is the largest of 32 values / 32639. Scales times quants and minimums are larger than the weights they give
    (by up to 32 for the formats here), and so is their rounding.
    """
    padded = np.pad(np.abs(x), ((0, 0), (0, -x.shape[1] % 32)))
    step = padded.reshape(len(x), -1, 32).max(axis=2) / 32639
    half_steps = np.repeat(step / 2, 32, axis=1)[:, : x.shape[1]]
    rounding = 2.0**-24 * 40 * np.abs(x) @ np.full_like(w, np.abs(w).max()).T
    return half_steps @ np.abs(w).T * 1.001 + rounding


@pytest.mark.parametrize(("rows", "blocks"), SHAPES)
@pytest.mark.parametrize("kind", MATRIX_TYPES, ids=lambda kind: kind.name)
def test_linear(kind: TensorType, rows: int, blocks: int) -> None:
    check_linear(kind, rows, blocks, ISAS)


def check_linear(kind: TensorType, rows: int, blocks: int, isas: Sequence[str]) -> None:
    """Scalar code within the bound, and each instruction set with its bits."""
    program, source = case(kind, rows, blocks)
    expected = forward(reference(program, source), range(VOCAB))
    x, w = (source.values(name).astype(np.float64) for name in ("x.weight", "w.weight"))
    bound = error_bound(x, w)
    scalar, executors = native(program, source, "scalar"), [native(program, source, isa) for isa in isas]
    for count in ROW_COUNTS:
        ids = (np.arange(count) * 5 + count) % VOCAB
        _, wanted = run(scalar, chunk(ids))
        assert np.all(np.abs(wanted - expected[ids]) <= bound[ids])
        for executor in executors:
            executor.poison()
            np.testing.assert_array_equal(run(executor, chunk(ids))[1], wanted, err_msg=executor.isa)


@pytest.mark.parametrize("kind", [kind for kind in MATRIX_TYPES if kind not in FLOAT_TYPES], ids=lambda kind: kind.name)
def test_activations_have_16_bits(kind: TensorType) -> None:
    """The error is that of 16-bit activations, 2e-5 of the result, and not that of bfloat16, 2e-3, or of 8 bits."""
    program, source = case(kind, 130, 2)
    rng = np.random.default_rng(1)
    source = MemorySource({**source.tensors, "x.weight": rng.standard_normal(source.info("x.weight").shape)})
    expected = forward(reference(program, source), range(VOCAB))
    error = run(native(program, source, ISAS[-1]), chunk(range(VOCAB)))[1] - expected
    assert np.linalg.norm(error) < 4e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 15, 16, 31, 40, 63])
@pytest.mark.parametrize("isa", ISAS)
def test_a_value_that_is_not_finite_stays_so(isa: str, column: int, bad: float) -> None:
    program, source = case(TensorType.Q8_0, 5, 3)
    x = source.values("x.weight").copy()
    x[1, column] = bad
    _, got = run(native(program, MemorySource({**source.tensors, "x.weight": x}), isa), chunk([0, 1, 2]))
    assert np.isfinite(got[[0, 2]]).all() and not np.isfinite(got[1]).any()


def gated_program(dim: int, ffn: int) -> Program:
    """q, k, v of one input with biases; a gated pair; a residual: every face of a fused linear."""
    b = Builder()
    x = b.embed("x", VOCAB, dim)
    h = b.rms_norm(x, "norm", 1e-5)
    q, k = b.linear(h, "q", dim, bias=True), b.linear(h, "k", dim)
    x = b.add(x, b.linear(b.add(q, k), "o", dim, bias=True))
    h = b.rms_norm(x, "norm2", 1e-5)
    x = b.add(x, b.linear(b.swiglu(b.linear(h, "gate", ffn), b.linear(h, "up", ffn)), "down", dim))
    b.output("logits", b.linear(b.rms_norm(b.output_rows(x), "norm3", 1e-5), "head", VOCAB + 3))
    return b.build()


def mixed_source(program: Program, types: tuple[TensorType, ...]) -> MemorySource:
    """Matrices of given types in turn, scaled so that activations stay near 1."""
    rng = np.random.default_rng(0)
    tensors = {}
    for index, weight in enumerate(program.weights.values()):
        kind = types[index % len(types)]
        if len(weight.shape) == 1 or kind is TensorType.F32:
            values = rng.standard_normal(weight.shape)
            tensors[weight.name] = values * 0.06 if len(weight.shape) == 2 else values
        else:
            tensors[weight.name] = random_matrix(kind, *weight.shape, seed=index)
    return MemorySource(tensors)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("types", [MATRIX_TYPES, (TensorType.F32,), (TensorType.Q4_K, TensorType.Q6_K)])
def test_gates_biases_residuals_and_norms(threads: int, types: tuple[TensorType, ...]) -> None:
    """Fused into linears or as ops of their own: the same bits, near the reference."""
    program = gated_program(256, 512)
    source = mixed_source(program, types)
    expected = forward(reference(program, source), range(11))
    _, scalar = run(native(program, source, "scalar"), chunk(range(11)))
    assert np.linalg.norm(scalar - expected) < 1e-4 * np.linalg.norm(expected)
    for isa, fused in product(ISAS, (True, False)):
        _, got = run(native(program, source, isa, num_threads=threads, fused=fused), chunk(range(11)))
        np.testing.assert_array_equal(got, scalar, err_msg=f"{isa}, fused: {fused}")
