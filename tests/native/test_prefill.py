"""Prompt rows in bfloat16, where an instruction set multiplies those: what is rounded, and that nothing else matters.

A row's bits depend on its own tokens: not on how many rows there are, on threads, or on generated rows beside it.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.native.in_memory import ROUNDING, MemorySource, chunk, forward, native, random_matrix, reference, run
from tests.native.test_experts import Mixture
from tests.native.test_linear import gated_program, mixed_source

from twostroke.models.load import MATRIX_TYPES
from twostroke.native.executor import NativeExecutor, available_isas
from twostroke.program.builder import Builder
from twostroke.program.phase import Phase
from twostroke.program.program import Program
from twostroke.weights.tensor_types import TensorType

ISAS = [isa for isa in available_isas() if isa in ROUNDING]
ALIKE = [isa for isa in available_isas() if isa not in ROUNDING]
EXACT = (TensorType.F32, TensorType.F16)  # have digits that bfloat16 lacks, as FP8's scales do
KINDS = [kind for kind in MATRIX_TYPES if kind not in EXACT and not kind.name.startswith("F8")]
VOCAB = 24
COUNTS = (1, 2, 5, 6, 7, 13, 16, 17, 33, 47, 100)
Array = npt.NDArray[Any]


def linear_program(dim: int, rows: int) -> Program:
    """The linear is of token rows: those of output rows are computed alike in both phases."""
    b = Builder()
    b.output("logits", b.output_rows(b.linear(b.embed("x", VOCAB, dim), "w", rows)))
    return b.build()


@cache
def case(kind: TensorType, rows: int, cols: int) -> tuple[Program, MemorySource]:
    x = np.random.default_rng(rows).standard_normal((VOCAB, cols)) * np.logspace(-3, 3, VOCAB)[:, None]
    x[3] = 0
    return linear_program(cols, rows), MemorySource({"x.weight": x, "w.weight": random_matrix(kind, rows, cols, rows)})


def rounded(values: Array) -> npt.NDArray[np.float64]:
    """To bfloat16, nearest even: the first 8 digits of the fraction."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return nearest.view(np.float32).astype(np.float64)


def prompt(executor: NativeExecutor, ids: Sequence[int] | Array, **fields: Any) -> Array:
    return run(executor, chunk(ids, phase=Phase.PREFILL, **fields))[1]


def check_linear(kind: TensorType, rows: int, cols: int, isa: str) -> None:
    """Products of inputs and weights that are rounded once each, summed in float32."""
    program, source = case(kind, rows, cols)
    x, w = (rounded(source.values(name)) for name in ("x.weight", "w.weight"))
    expected = x @ w.T
    executor = native(program, source, isa)
    first: dict[int, Array] = {}
    for count in COUNTS:
        ids = (np.arange(count) * 5 + count) % VOCAB
        executor.poison()
        got = prompt(executor, ids)
        error = np.linalg.norm(got - expected[ids], axis=1)
        assert np.all(error <= 3e-4 * np.linalg.norm(expected[ids], axis=1))  # now and then a weight is a digit off
        for token, row in zip(ids.tolist(), got, strict=True):
            np.testing.assert_array_equal(row, first.setdefault(token, row))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_linear(kind: TensorType, isa: str) -> None:
    check_linear(kind, 37, 2 * max(32, kind.block_size), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("kind", "rows", "cols"), [("Q8_0", 1, 32), ("BF16", 130, 33), ("BF16", 16, 7), ("Q4_K", 70, 1280)]
)
def test_shapes(kind: str, rows: int, cols: int, isa: str) -> None:
    """Few columns, odd ones, and more than a panel has."""
    check_linear(TensorType[kind], rows, cols, isa)


def check_rows(isa: str, count: int) -> None:
    """More rows than one call of a kernel takes, on several threads, which share a panel's rows."""
    program, source = case(TensorType.Q4_1, 37, 64)
    ids = np.arange(count) % VOCAB
    few = prompt(native(program, source, isa), ids[:VOCAB])
    for threads in (1, 3):
        executor = native(program, source, isa, num_threads=threads, max_step_tokens=count, max_context=count)
        np.testing.assert_array_equal(prompt(executor, ids), few[ids])


@pytest.mark.parametrize("isa", ISAS)
def test_more_rows_than_a_kernel_takes(isa: str) -> None:
    check_rows(isa, 1100)


@pytest.mark.parametrize("isa", ISAS)
def test_phases_differ_where_prompt_rows_are_rounded(isa: str) -> None:
    """The control: a wrong phase would show. In float32 and float16 weights nothing is rounded."""
    for kind in (TensorType.Q4_1, *EXACT):
        program, source = case(kind, 37, 64)
        executor = native(program, source, isa)
        generated = run(executor, chunk(range(VOCAB)))[1]
        assert np.array_equal(prompt(executor, range(VOCAB)), generated) == (kind in EXACT)


@pytest.mark.parametrize("isa", ALIKE)
def test_phases_are_alike_elsewhere(isa: str) -> None:
    program, source = case(TensorType.Q4_1, 37, 64)
    executor = native(program, source, isa)
    np.testing.assert_array_equal(prompt(executor, range(VOCAB)), run(executor, chunk(range(VOCAB)))[1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("isa", ISAS)
def test_a_value_that_is_not_finite_stays_so(isa: str, bad: float) -> None:
    program, source = case(TensorType.Q8_0, 37, 64)
    x = source.values("x.weight").copy()
    x[1, 40] = bad
    got = prompt(native(program, MemorySource({**source.tensors, "x.weight": x}), isa), [0, 1, 2])
    assert np.isfinite(got[[0, 2]]).all() and not np.isfinite(got[1]).any()


def check_gated(isa: str, types: tuple[TensorType, ...]) -> None:
    """Gates, biases, residuals and norms: fused or not, the same bits; near the reference."""
    program = gated_program(256, 512)
    source = mixed_source(program, types)
    expected = forward(reference(program, source), range(11))
    results = [
        prompt(native(program, source, isa, fused=fused, num_threads=threads), range(11))
        for fused in (True, False)
        for threads in (1, 3)
    ]
    for got in results[1:]:
        np.testing.assert_array_equal(got, results[0])
    assert np.linalg.norm(results[0] - expected) < 0.02 * np.linalg.norm(expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("types", [KINDS, (TensorType.Q4_K, TensorType.Q6_K), (TensorType.Q8_0, TensorType.BF16)])
def test_gates_biases_residuals_and_norms(isa: str, types: tuple[TensorType, ...]) -> None:
    check_gated(isa, types)


def check_mixed_step(isa: str, program: Program, source: MemorySource) -> None:
    """Prompt and generated rows of one step, one among the others, are what they are alone."""
    executor = native(program, source, isa, num_threads=2)
    ids = np.arange(VOCAB)
    alone = {phase: run(executor, chunk(ids, phase=phase))[1] for phase in Phase}
    assert not np.array_equal(alone[Phase.PREFILL], alone[Phase.DECODE])
    order = [
        (Phase.DECODE, [4]),
        (Phase.DECODE, [5, 6]),
        (Phase.PREFILL, [0, 1, 2]),
        (Phase.PREFILL, ids),
        (Phase.DECODE, [7]),
    ]
    _, got = run(executor, *(chunk(part, phase=phase) for phase, part in order))
    np.testing.assert_array_equal(got, np.concatenate([alone[phase][part] for phase, part in order]))


@pytest.mark.parametrize("isa", ISAS)
def test_a_step_of_both_phases(isa: str) -> None:
    program = gated_program(256, 512)
    check_mixed_step(isa, program, mixed_source(program, (TensorType.Q4_K, TensorType.Q6_K)))


Q8 = (TensorType.Q8_0,) * 3


def check_experts(isa: str, types: tuple[TensorType, TensorType, TensorType]) -> None:
    mixture = Mixture(dim=64, ffn=96, types=types, bias=True)
    program, source = mixture.program(), mixture.source()
    expected = forward(reference(program, source), range(VOCAB))
    got = prompt(native(program, source, isa, num_threads=3), range(VOCAB))
    assert np.linalg.norm(got - expected) < 0.02 * np.linalg.norm(expected)
    check_mixed_step(isa, program, source)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("types", [Q8, (TensorType.BF16,) * 3, (TensorType.F32, TensorType.Q8_0, TensorType.Q4_1)])
def test_experts(isa: str, types: tuple[TensorType, TensorType, TensorType]) -> None:
    """Of a gate and an up of which one has digits that bfloat16 lacks, both are multiplied as in generated rows."""
    check_experts(isa, types)


@pytest.mark.parametrize("isa", ISAS)
def test_one_expert_with_more_rows_than_a_kernel_takes(isa: str) -> None:
    mixture = Mixture(dim=64, ffn=32, types=Q8)
    program = mixture.program()
    router = np.zeros((70, 6))
    router[:, 2:5] = 5.0
    source = mixture.source(**{"router.weight": router})
    ids = np.arange(1100) % 70
    few = prompt(native(program, source, isa), ids[:70])
    executor = native(program, source, isa, num_threads=2, max_step_tokens=1100, max_context=1104)
    np.testing.assert_array_equal(prompt(executor, ids), few[ids])
