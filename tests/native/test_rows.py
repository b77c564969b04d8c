"""Ops on rows: embedding, norm, RoPE, add, swiglu. Against float64, and bit for bit against scalar."""

from collections.abc import Callable
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
from twostroke.program.values import RopeSpec, Value, Weight
from twostroke.weights.tensor_types import TensorType

ISAS = available_isas()
ROWS = 35


def program_of(dim: int, build: Callable[[Builder, Value, Value], Value], *, late: bool = False) -> Program:
    """Two tables looked up by token id, `build` over them; `late` builds on output rows."""
    b = Builder()
    x, y = b.embed("x", ROWS, dim), b.embed("y", ROWS, dim)
    if late:
        out = build(b, b.output_rows(x), b.output_rows(y))
    else:
        out = b.output_rows(build(b, x, y))
    b.output("logits", out)
    return b.build()


def source_of(dim: int, **more: np.ndarray) -> MemorySource:
    rng = np.random.default_rng(dim)
    x = rng.standard_normal((ROWS, dim)) * np.logspace(-3, 3, ROWS)[:, None]
    tensors = {"x.weight": x, "y.weight": rng.standard_normal((ROWS, dim))}
    return MemorySource({**tensors, "norm.weight": rng.standard_normal(dim), **more})


def check(program: Program, source: MemorySource, relative: float) -> None:
    """On every instruction set; `late` ops see outputs in tiles of 32.

    Each value within `relative` of the largest of its row, or 1e-35, and scalar code's on one thread to the bit.
    """
    ids = np.arange(ROWS)[::-1].copy()
    expected = forward(reference(program, source), ids)
    scalar = run(native(program, source, "scalar"), chunk(ids))[1]
    assert np.all(np.abs(scalar - expected) <= relative * np.abs(expected).max(axis=1, keepdims=True) + 1e-35)
    for isa, threads in product(ISAS, (1, 2)):
        _, got = run(native(program, source, isa, num_threads=threads), chunk(ids))
        np.testing.assert_array_equal(got, scalar, err_msg=f"{isa}, {threads} threads")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dim", [1, 5, 16, 33, 576])
def test_rms_norm(dim: int, late: bool) -> None:
    check(program_of(dim, lambda b, x, y: b.rms_norm(x, "norm", 1e-5), late=late), source_of(dim), 1e-6)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dim", [1, 7, 16, 100])
def test_add(dim: int, late: bool) -> None:
    check(program_of(dim, lambda b, x, y: b.add(x, y), late=late), source_of(dim), 2.0**-23)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dim", [1, 7, 16, 100])
def test_swiglu(dim: int, late: bool) -> None:
    """Gates from -3,000 to 3,000: where e^x overflows, too."""
    check(program_of(dim, lambda b, x, y: b.swiglu(x, y), late=late), source_of(dim), 1e-6)


@pytest.mark.parametrize("isa", ISAS)
def test_swiglu_element_by_element(isa: str) -> None:
    """silu within 1e-6 of each value down to where it vanishes: the error is relative, not that of the largest."""
    gate = np.tile(np.linspace(-80, 80, 320), (ROWS, 1))
    source = source_of(320, **{"x.weight": gate, "y.weight": np.ones((ROWS, 320))})
    program = program_of(320, lambda b, x, y: b.swiglu(x, y))
    expected = forward(reference(program, source), [0])
    np.testing.assert_allclose(run(native(program, source, isa), chunk([0]))[1], expected, rtol=1e-6)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize(("head_dim", "dim"), [(16, 16), (20, 6), (64, 64), (80, 32), (128, 128)])
@pytest.mark.parametrize("scaled", [False, True])
def test_rope(head_dim: int, dim: int, pairing: str, scaled: bool) -> None:
    """The whole head or its first `dim` elements; positions far from 0; with and without scaled frequencies."""
    factors = Weight("factors", (dim // 2,)) if scaled else None
    spec = RopeSpec(dim, 10000.0, pairing, (4.0,) * (dim // 2) if scaled else None, factors)  # type: ignore[arg-type]
    program = program_of(3 * head_dim, lambda b, x, y: b.rope(y, head_dim, spec))
    source = source_of(3 * head_dim, factors=np.linspace(1, 8, dim // 2))
    ids = np.arange(ROWS)
    oracle = reference(program, source)
    state = oracle.new_state()
    oracle.forward(state, np.zeros(900, np.int64), 0)
    expected = oracle.forward(state, ids)["logits"]
    _, scalar = run(native(program, source, "scalar"), chunk(ids, start=900))
    np.testing.assert_allclose(scalar, expected, rtol=0, atol=1e-6)
    for isa in ISAS:
        _, got = run(native(program, source, isa), chunk(ids, start=900))
        np.testing.assert_array_equal(got, scalar, err_msg=isa)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (16, 2), (37, 3)])
@pytest.mark.parametrize("kind", MATRIX_TYPES, ids=lambda kind: kind.name)
def test_packed_rows_are_the_file_s_values(kind: TensorType, rows: int, blocks: int, threads: int) -> None:
    """Packing and unpacking give what dequantising the file gives, bit for bit (a zero may differ in sign)."""
    cols = 7 * blocks if kind in FLOAT_TYPES else blocks * kind.block_size
    b = Builder()
    b.output("logits", b.output_rows(b.embed("x", rows, cols)))
    packed = random_matrix(kind, rows, cols)
    executor = native(b.build(), MemorySource({"x.weight": packed}), num_threads=threads)
    _, got = run(executor, chunk(range(rows)))
    np.testing.assert_array_equal((got + 0.0).view(np.uint32), (packed.values + np.float32(0.0)).view(np.uint32))
    assert executor.weight_bytes == packed.data.size // rows * (-(-rows // 16) * 16)
