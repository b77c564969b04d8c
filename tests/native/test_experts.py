"""Mixtures of experts: against float64, and bit for bit whatever the instruction set, threads and other rows.

Router logits are looked up by token id, so that a test states which experts a row goes to.
"""

from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import pytest
from tests.native.in_memory import (
    FLOAT_TYPES,
    MemorySource,
    Packed,
    chunk,
    float_matrix,
    forward,
    native,
    random_matrix,
    reference,
    run,
)

from twostroke.native.executor import available_isas
from twostroke.program.builder import Builder
from twostroke.program.elementwise import GatedActivation
from twostroke.program.experts import Routed
from twostroke.program.program import Program
from twostroke.weights.tensor_types import TensorType

ISAS = available_isas()
VOCAB = 70
F32, F16, BF16, Q8_0 = TensorType.F32, TensorType.F16, TensorType.BF16, TensorType.Q8_0
ROUTINGS = {
    "of all": Routed(6, 3, "softmax_topk"),
    "renormalised": Routed(6, 3, "softmax_topk", renormalize=True),
    "of the chosen": Routed(6, 3, "topk_softmax"),
    "scaled": Routed(6, 3, "softmax_topk", scale=2.5),
}


@dataclass(frozen=True)
class Mixture:
    """An experts op over looked-up rows and logits. `types` are of gate, up, down; `late` runs it on output rows."""

    routed: Routed = ROUTINGS["of the chosen"]
    dim: int = 20
    ffn: int = 37
    types: tuple[TensorType, TensorType, TensorType] = (F32, F32, F32)
    activation: GatedActivation = "silu"
    bias: bool = False
    late: bool = False

    def program(self) -> Program:
        b = Builder()
        x, router = b.embed("x", VOCAB, self.dim), b.embed("router", VOCAB, self.routed.num_experts)
        if self.late:
            x, router = b.output_rows(x), b.output_rows(router)
        out = b.experts(x, router, "ffn", self.ffn, self.routed, activation=self.activation, bias=self.bias)
        b.output("logits", out if self.late else b.output_rows(out))
        return b.build()

    def source(self, **replaced: np.ndarray) -> MemorySource:
        """Outputs of an expert are of the size of its inputs, whatever its types."""
        rng = np.random.default_rng(0)
        tensors: dict[str, Any] = {
            "x.weight": rng.standard_normal((VOCAB, self.dim)),
            "router.weight": rng.standard_normal((VOCAB, self.routed.num_experts)) * 2,
        }
        weights = self.program().weights
        for kind, name in zip(self.types, ("gate", "up", "down"), strict=True):
            shape = weights[f"ffn_{name}_exps.weight"].shape
            tensors[f"ffn_{name}_exps.weight"] = experts_matrix(kind, shape, seed=len(name))
            tensors[f"ffn_{name}_exps.bias"] = rng.standard_normal(shape[:2])
        spread = tensors["ffn_gate_exps.weight"].values.std() * self.dim**0.5
        tensors["x.weight"] = tensors["x.weight"] / spread
        return MemorySource({**tensors, **replaced})


def experts_matrix(kind: TensorType, shape: tuple[int, ...], seed: int) -> Packed:
    count, rows, cols = shape
    if kind in FLOAT_TYPES:
        values = np.random.default_rng(seed).standard_normal(shape) * cols**-0.5
        return float_matrix(kind, values)
    return replace(random_matrix(kind, count * rows, cols, seed), shape=shape)


def check(mixture: Mixture, source: MemorySource | None = None, tolerance: float = 1e-4) -> np.ndarray:
    """Rows of all token ids: near float64's (relative to each row's norm), on every instruction set the same bits."""
    program, source = mixture.program(), source or mixture.source()
    expected = forward(reference(program, source), range(VOCAB))
    assert np.linalg.norm(expected, axis=1).min() > 0
    scalar = run(native(program, source), chunk(range(VOCAB)))[1]
    error = np.linalg.norm(scalar - expected, axis=1)
    assert np.all(error < tolerance * np.linalg.norm(expected, axis=1))
    for isa in ISAS:
        _, got = run(native(program, source, isa, num_threads=2), chunk(range(VOCAB)))
        np.testing.assert_array_equal(got, scalar, err_msg=isa)
    return scalar


TYPES = {
    "floats with tails": Mixture(types=(F32, F16, BF16)),
    "quantised, then floats": Mixture(dim=64, ffn=37, types=(TensorType.Q4_0, TensorType.Q4_0, F16)),
    "floats, then quantised": Mixture(dim=20, ffn=64, types=(F16, F16, Q8_0)),
    "a quantised gate and another up": Mixture(dim=64, ffn=96, types=(TensorType.Q4_1, TensorType.Q5_0, Q8_0)),
    "a quantised gate, up in floats": Mixture(dim=64, ffn=96, types=(Q8_0, F32, Q8_0)),
    "a gate in floats, up quantised": Mixture(dim=64, ffn=96, types=(BF16, Q8_0, F32)),
    "MXFP4": Mixture(dim=64, ffn=96, types=(TensorType.MXFP4,) * 3),
    "K-quants": Mixture(dim=256, ffn=512, types=(TensorType.Q4_K, TensorType.Q4_K, TensorType.Q6_K)),
    "GPTQ's groups": Mixture(dim=64, ffn=128, types=(TensorType.G4_64_F16,) * 3),
    "FP8, and floats beside it": Mixture(dim=128, ffn=128, types=(TensorType.F8_128_F32, BF16, TensorType.F8_128_F32)),
    "FP8, and codes of 8 bits": Mixture(dim=128, ffn=128, types=(TensorType.F8_128_F32, Q8_0, TensorType.G8_64_BF16)),
    "codebooks": Mixture(dim=256, ffn=256, types=(TensorType.IQ2_XXS, TensorType.IQ2_S, TensorType.IQ3_S)),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("types", TYPES)
def test_types(types: str, bias: bool) -> None:
    check(replace(TYPES[types], bias=bias), tolerance=2e-4)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", get_args(GatedActivation))
def test_activations(activation: GatedActivation, bias: bool) -> None:
    check(Mixture(activation=activation, bias=bias), tolerance=3e-6)


@pytest.mark.parametrize("top_k", range(1, 7))
@pytest.mark.parametrize("routing", ROUTINGS)
def test_routing(routing: str, top_k: int) -> None:
    """From one expert to all of them."""
    check(Mixture(replace(ROUTINGS[routing], top_k=top_k), bias=True), tolerance=3e-6)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("num_experts", "top_k"), [(1, 1), (2, 1), (64, 1), (64, 8), (128, 100)])
def test_numbers_of_experts(num_experts: int, top_k: int, late: bool) -> None:
    """More than there are rows for, and one; on tokens and on output rows, of which there is more than one tile."""
    routed = Routed(num_experts, top_k, "softmax_topk")
    check(Mixture(routed, dim=16, ffn=8, late=late), tolerance=3e-6)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_of_equal_logits_the_lower_ids_are_chosen(routing: str) -> None:
    rng = np.random.default_rng(4)
    logits = rng.integers(-1, 2, (VOCAB, 6)).astype(np.float32)
    logits[:5] = 0.0
    logits[1, ::2] = -0.0  # which equals 0
    mixture = Mixture(ROUTINGS[routing])
    source = mixture.source(**{"router.weight": logits})
    got = check(mixture, source, tolerance=3e-6)
    bad = source.values("ffn_up_exps.weight").copy()
    bad[3:] = np.nan
    source = MemorySource({**source.tensors, "ffn_up_exps.weight": bad})
    for isa in ISAS:
        _, again = run(native(mixture.program(), source, isa), chunk(range(5)))
        np.testing.assert_array_equal(again, got[:5], err_msg=isa)


@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_router_logits_of_any_size(scale: float) -> None:
    """One expert has all: no exponential overflows. Others, infinitely unlikely, are still chosen."""
    mixture = Mixture(ROUTINGS["of all"])
    logits = mixture.source().values("router.weight") * scale
    logits[::2, 0] = -np.inf
    check(mixture, mixture.source(**{"router.weight": logits}), tolerance=3e-6)


@pytest.mark.parametrize("chosen", range(6))
def test_every_row_to_one_expert(chosen: int) -> None:
    """And the others, which nobody chose, are not read."""
    mixture = Mixture(replace(ROUTINGS["of the chosen"], top_k=1), dim=64, ffn=64, types=(Q8_0, Q8_0, F32), bias=True)
    logits = np.zeros((VOCAB, 6), np.float32)
    logits[:, chosen] = 1
    source = mixture.source(**{"router.weight": logits})
    got = check(mixture, source)
    bad = {}
    for name in ("ffn_down_exps.weight", *(f"ffn_{part}_exps.bias" for part in ("gate", "up", "down"))):
        bad[name] = np.full(source.info(name).shape, np.nan)
        bad[name][chosen] = source.values(name)[chosen]
    for isa in ISAS:
        _, again = run(native(mixture.program(), MemorySource({**source.tensors, **bad}), isa), chunk(range(VOCAB)))
        np.testing.assert_array_equal(again, got, err_msg=isa)


@pytest.mark.parametrize("isa", ISAS)
def test_experts_are_summed_in_the_order_of_their_ids(isa: str) -> None:
    """Not of their logits: with shares of exactly a quarter the float32 sum says which order it was."""
    logits = np.tile(np.array([4e-9, 3e-9, 9e-9, 1e-9]), (VOCAB, 1)).astype(np.float32)
    mixture = Mixture(Routed(4, 4, "topk_softmax"), dim=64)
    source = mixture.source(**{"router.weight": logits})
    _, got = run(native(mixture.program(), source, isa), chunk(range(VOCAB)))
    alone = []
    for expert in range(4):
        one = replace(mixture, routed=Routed(4, 1, "topk_softmax"))
        logits = np.zeros((VOCAB, 4))
        logits[:, expert] = 1
        alone.append(
            run(native(one.program(), one.source(**{"router.weight": logits}), isa), chunk(range(VOCAB)))[1] / 4
        )
    np.testing.assert_array_equal(got, ((alone[0] + alone[1]) + alone[2]) + alone[3])
    assert not np.array_equal(got, ((alone[2] + alone[0]) + alone[1]) + alone[3])


QUANTISED = Mixture(dim=64, ffn=96, types=(TensorType.Q4_0, TensorType.Q4_0, Q8_0), bias=True)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("mixture", [Mixture(bias=True), QUANTISED], ids=["floats", "quantised"])
def test_a_row_does_not_depend_on_the_others(mixture: Mixture, late: bool, isa: str) -> None:
    """Alone, in any company, in any order, on any number of threads: the same bits."""
    mixture = replace(mixture, late=late)
    program, source = mixture.program(), mixture.source()
    one = native(program, source, isa)
    alone = np.concatenate([run(one, chunk([token]))[1] for token in range(VOCAB)])
    for threads in (1, 2, 3, 4):
        executor = native(program, source, isa, num_threads=threads)
        for count in (2, 3, 7, 8, 9, 33, 70, 200):
            ids = np.random.default_rng(count).integers(0, VOCAB, count)
            executor.poison()
            np.testing.assert_array_equal(run(executor, chunk(ids))[1], alone[ids])


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("threads", [2, 3, 4])
def test_threads(threads: int, late: bool) -> None:
    """Steps of all sizes one after another, several mixtures in each, more threads than CPUs: as on one thread.

    Tiles of 32 rows go to few experts and to many in turn, so that what one tile plans does not serve another.
    """
    b = Builder()
    x, router = b.embed("x", VOCAB, 64), b.embed("router", VOCAB, 6)
    if late:
        x, router = b.output_rows(x), b.output_rows(router)
    for index in range(3):
        routed = replace(ROUTINGS["of all"], top_k=1 + 2 * index)
        x = b.add(x, b.experts(x, router, "ffn", 96, routed, bias=True))
    b.output("logits", x if late else b.output_rows(x))
    program, source = b.build(), QUANTISED.source()
    one, many = native(program, source, ISAS[-1]), native(program, source, ISAS[-1], num_threads=threads)
    for step in range(60):
        rng = np.random.default_rng(step)
        tiles = [rng.integers(0, VOCAB, 1 if tile % 2 else 32).repeat(32 if tile % 2 else 1) for tile in range(12)]
        ids = np.concatenate(tiles)[: 384 - 61 * step % 380]
        np.testing.assert_array_equal(run(many, chunk(ids))[1], run(one, chunk(ids))[1])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("mixture", [Mixture(), QUANTISED], ids=["floats", "quantised"])
def test_what_is_not_finite_stays_in_its_row(mixture: Mixture, bad: float, isa: str) -> None:
    source = mixture.source()
    x = source.values("x.weight").copy()
    x[3, 5] = bad
    good = run(native(mixture.program(), source, isa), chunk(range(9)))[1]
    _, got = run(native(mixture.program(), MemorySource({**source.tensors, "x.weight": x}), isa), chunk(range(9)))
    assert not np.isfinite(got[3]).any()
    np.testing.assert_array_equal(np.delete(got, 3, axis=0), np.delete(good, 3, axis=0))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("experts", [[0], [5], [2, 4], range(6)], ids=str)
def test_a_logit_that_is_no_number_is_not_lost(experts: list[int], routing: str, isa: str) -> None:
    """A choice among logits of which one is NaN is none: the row is NaN, others are as they were."""
    mixture = Mixture(ROUTINGS[routing])
    source = mixture.source()
    logits = source.values("router.weight").copy()
    logits[3, list(experts)] = np.nan
    good = run(native(mixture.program(), source, isa), chunk(range(9)))[1]
    bad = MemorySource({**source.tensors, "router.weight": logits})
    _, got = run(native(mixture.program(), bad, isa, num_threads=2), chunk(range(9)))
    assert np.isnan(got[3]).all()
    np.testing.assert_array_equal(np.delete(got, 3, axis=0), np.delete(good, 3, axis=0))


@pytest.mark.parametrize("change", ["top_k", "kind", "scale", "activation", "bias"])
def test_what_must_change_the_result_does(change: str) -> None:
    """Controls: each attribute counts."""
    routed = ROUTINGS["of all"]
    other: dict[str, Mixture] = {
        "top_k": Mixture(replace(routed, top_k=2)),
        "kind": Mixture(replace(routed, kind="topk_softmax")),
        "scale": Mixture(replace(routed, scale=1.5)),
        "activation": Mixture(routed, activation="gelu"),
        "bias": Mixture(routed, bias=True),
    }
    found = [
        run(native(made.program(), made.source(), ISAS[-1]), chunk(range(9)))[1]
        for made in (Mixture(routed), other[change])
    ]
    assert (np.abs(found[0] - found[1]).max(axis=1) > 1e-3).all()
