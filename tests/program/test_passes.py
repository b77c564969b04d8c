"""Passes change how a program runs and never what it gives."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.program.samples import TINY, random_ids, random_weights

from twostroke.models.config import ModelConfig
from twostroke.models.registry import build_program
from twostroke.models.rope_scaling import RopeScaling
from twostroke.program.builder import Builder
from twostroke.program.ops import Linear
from twostroke.program.passes import fuse
from twostroke.program.program import Program
from twostroke.program.reference import ReferenceExecutor
from twostroke.program.values import CacheSpec, RopeSpec, Value

CONFIGS = {
    "llama": TINY,
    "tied": replace(TINY, tied_head=True),
    "biases": replace(TINY, qkv_bias=True, attn_output_bias=True),
    "partial rope, scaled": replace(TINY, rope_dim=4, rope_scaling=RopeScaling("linear", 4.0), rope_factors=True),
    "qwen2": replace(TINY, architecture="qwen2", num_heads=2, head_dim=12, rope_dim=12),
}


def assert_fusing_keeps_results(program: Program) -> Program:
    fused = fuse(program)
    before = ReferenceExecutor(program, random_weights(program), np.float64)
    after = ReferenceExecutor(fused, random_weights(program), np.float64)
    ids = random_ids(20)
    states = before.new_state(), after.new_state()
    for chunk, num_outputs in ((ids[:13], 0), (ids[13:], 5)):
        expected = before.forward(states[0], chunk, num_outputs)
        found = after.forward(states[1], chunk, num_outputs)
        assert found.keys() == expected.keys()
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-12)
    assert set(fused.weights) == set(program.weights)
    assert fuse(fused).ops == fused.ops
    return fused


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("outputs", [("logits",), ("hidden", "logits"), ("hidden",)], ids="+".join)
def test_fusing_keeps_results(config: ModelConfig, outputs: tuple[str, ...]) -> None:
    assert_fusing_keeps_results(build_program(config, outputs))


def test_results_depend_on_the_weights() -> None:
    """The control: what the test above compares is not constant."""
    program = build_program(TINY)
    ids = random_ids(7)
    first, second = (
        executor.forward(executor.new_state(), ids)["logits"]
        for executor in (ReferenceExecutor(program, random_weights(program, seed), np.float64) for seed in (0, 1))
    )
    assert np.abs(first - second).max() > 0.1


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_a_layer_is_five_ops(architecture: str) -> None:
    """qkv with its norm, attention with its RoPE, its output with the residual, gate and up with theirs, down."""
    fused = fuse(build_program(replace(TINY, architecture=architecture)))
    kinds = Counter(op.kind for op in fused.ops)
    assert kinds == {"embed": 1, "linear": 4 * TINY.num_layers + 1, "attention": TINY.num_layers, "output_rows": 1}
    qkv, attention, output, gated, down = fused.ops[1:6]
    assert (len(qkv.outputs), qkv.norm is not None) == (3, True)
    assert attention.rope is not None
    assert output.residual == fused.ops[0].output
    assert (gated.gate, len(gated.matrices), gated.norm is not None) == ("silu", 2, True)
    assert down.residual == output.outputs[0]
    assert fused.ops[-1].norm is not None


def test_a_norm_that_is_an_output_stays() -> None:
    fused = fuse(build_program(TINY, ("hidden", "logits")))
    assert fused.outputs["hidden"] == fused.ops[-2].output
    assert [op.kind for op in fused.ops[-2:]] == ["norm", "linear"]


def test_a_norm_with_another_reader_stays() -> None:
    b = Builder()
    x = b.embed("table", 50, 24)
    h = b.rms_norm(x, "norm", 1e-5)
    b.output("logits", b.output_rows(b.add(h, b.linear(h, "matrix", 24))))
    fused = assert_fusing_keeps_results(b.build())
    assert [op.kind for op in fused.ops] == ["embed", "norm", "linear", "output_rows"]


def test_a_residual_written_after_the_linear_is_not_taken_in() -> None:
    b = Builder()
    x = b.embed("table", 50, 24)
    early = b.linear(x, "early", 24)
    late = b.rms_norm(b.swiglu(x, x), "norm", 1e-5)
    b.output("logits", b.output_rows(b.add(late, early)))
    fused = assert_fusing_keeps_results(b.build())
    assert "add" in [op.kind for op in fused.ops]


def test_a_linear_read_twice_is_not_given_the_residual() -> None:
    b = Builder()
    x = b.embed("table", 50, 24)
    y = b.linear(x, "matrix", 24)
    b.output("logits", b.output_rows(b.swiglu(b.add(x, y), y)))
    assert_fusing_keeps_results(b.build())


def test_gate_and_up_with_biases_stay_apart() -> None:
    b = Builder()
    x = b.embed("table", 50, 24)
    gate, up = b.linear(x, "gate", 24, bias=True), b.linear(x, "up", 24, bias=True)
    b.output("logits", b.output_rows(b.swiglu(gate, up)))
    fused = assert_fusing_keeps_results(b.build())
    assert [op.kind for op in fused.ops] == ["embed", "linear", "gated", "output_rows"]


@pytest.mark.parametrize("case", ["k read twice", "k is v", "q and k rotate unlike"])
def test_rope_that_has_another_reader_stays(case: str) -> None:
    b = Builder()
    rope = RopeSpec(8, 10000.0, "half")
    x = b.embed("table", 50, 8)
    q = b.rope(b.linear(x, "q", 8), 8, rope._replace(base=100.0) if case == "q and k rotate unlike" else rope)
    k = b.rope(b.linear(x, "k", 8), 8, rope)
    v: Value = k if case == "k is v" else b.linear(x, "v", 8)
    attended = b.attention(q, k, v, CacheSpec("cache", 1, 8))
    b.output("logits", b.output_rows(b.add(attended, k if case == "k read twice" else x)))
    fused = assert_fusing_keeps_results(b.build())
    assert [op.kind for op in fused.ops].count("rope") == 2


def test_linears_of_different_inputs_stay_apart() -> None:
    b = Builder()
    x = b.embed("table", 50, 24)
    y = b.linear(b.swiglu(x, x), "a", 8)
    z = b.linear(x, "b", 8)
    b.output("logits", b.output_rows(b.add(y, z)))
    fused = assert_fusing_keeps_results(b.build())
    assert sum(isinstance(op, Linear) for op in fused.ops) == 2


def test_a_linear_that_took_a_norm_stays_apart_from_one_of_the_bare_value() -> None:
    b = Builder()
    x = b.embed("table", 50, 24)
    normed = b.linear(b.rms_norm(x, "norm", 1e-5), "normed", 24)
    bare = b.linear(x, "bare", 24)
    b.output("logits", b.output_rows(b.swiglu(normed, bare)))
    fused = assert_fusing_keeps_results(b.build())
    assert [op.kind for op in fused.ops] == ["embed", "linear", "linear", "gated", "output_rows"]
