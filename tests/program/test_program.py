"""Programs and their builder: shapes inferred, misfits refused, names, text."""

from dataclasses import replace

import pytest
from tests.program.samples import HAND, TINY

from twostroke.models.registry import build_program
from twostroke.program import ops
from twostroke.program.builder import Builder, Layer
from twostroke.program.ops import ProgramError
from twostroke.program.program import Program
from twostroke.program.values import CacheSpec, Norm, RopeSpec, Rows, Value, Weight

EMBED = ops.Embed("x", Weight("table.weight", (50, 8)))
CACHE = CacheSpec("cache", 1, 8)


def linear(output: str = "y", source: str = "x", shape: tuple[int, int] = (8, 8)) -> ops.Linear:
    return ops.Linear((output,), source, (Weight(f"{output}.weight", shape),), (None,))


MISFITS = {
    "read before written": (linear(source="nothing"), "reads nothing"),
    "written twice": (linear("x"), "written twice"),
    "a matrix of another width": (linear(shape=(8, 9)), "does not multiply"),
    "a bias of another size": (replace(linear(), biases=(Weight("b", (9,)),)), "does not fit"),
    "a bias slot too many": (replace(linear(), biases=(None, None)), "one bias slot"),
    "a norm of another size": (ops.Normalize("y", "x", Norm(Weight("n", (9,)), 1e-5)), "does not scale"),
    "a fused norm of another size": (replace(linear(), norm=Norm(Weight("n", (9,)), 1e-5)), "does not scale"),
    "a gate of one matrix": (replace(linear(), gate="silu"), "two matrices"),
    "two results of one matrix": (replace(linear(), results=("y", "z")), "one output a matrix"),
    "a residual of another size": (replace(linear(shape=(9, 8)), residual="x"), "residual"),
    "a table of one dimension": (ops.Embed("y", Weight("table", (50,))), "not a table"),
    "heads that do not divide": (ops.Rope("y", "x", 3, RopeSpec(2, 1e4, "half")), "divide into heads"),
    "an odd rotary dim": (ops.Rope("y", "x", 8, RopeSpec(3, 1e4, "half")), "odd"),
    "a rotary dim beyond the head": (ops.Rope("y", "x", 4, RopeSpec(8, 1e4, "half")), "beyond the head"),
    "another number of query heads": (ops.Attention("y", "x", "x", "x", 2, CACHE, 1.0), "not 2 heads"),
    "KV heads that do not divide": (ops.Attention("y", "x", "x", "x", 1, CacheSpec("c", 2, 4), 1.0), "divide among"),
    "keys of another size": (ops.Attention("y", "x", "x", "x", 2, CacheSpec("c", 2, 8), 1.0), "not 2 heads"),
}


@pytest.mark.parametrize(("op", "message"), MISFITS.values(), ids=MISFITS.keys())
def test_misfits_are_refused(op: ops.Op, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        Program((EMBED, op), {}).values  # noqa: B018


def test_values_of_different_rows_are_not_added() -> None:
    b = Builder()
    x = b.embed("table", 50, 8)
    with pytest.raises(ProgramError, match="differ in shape"):
        b.add(x, b.output_rows(x))
    with pytest.raises(ProgramError, match="differ in shape"):
        b.swiglu(x, b.output_rows(x))
    with pytest.raises(ProgramError, match="reduced to output rows"):
        b.output_rows(b.output_rows(x))


def test_an_output_names_a_value() -> None:
    b = Builder()
    b.embed("table", 50, 8)
    b.output("logits", Value("nothing", 8))
    with pytest.raises(ProgramError, match="output logits names nothing"):
        b.build()


def test_a_weight_has_one_shape() -> None:
    program = Program((EMBED, linear(), ops.Linear(("z",), "y", (Weight("table.weight", (40, 8)),), (None,))), {})
    with pytest.raises(ProgramError, match=r"table\.weight is used in two shapes"):
        program.weights  # noqa: B018


def test_values_and_weights_of_a_model() -> None:
    program = build_program(HAND)
    logits = program.values[program.outputs["logits"]]
    assert (logits.dim, logits.rows) == (HAND.vocab_size, Rows.OUTPUTS)
    assert program.weights["blk.0.ffn_down.weight"].shape == (8, 16)
    assert list(program.weights)[:2] == ["token_embd.weight", "blk.0.attn_norm.weight"]
    assert len(program.weights) == 1 + 9 + 2
    assert [cache.name for cache in program.caches] == [Layer(0) / "attention"]
    assert len(build_program(TINY).cache_groups) == 1


def test_the_text_has_a_line_an_op() -> None:
    program = build_program(HAND)
    lines = str(program).splitlines()
    assert len(lines) == len(program.ops)
    assert lines[0] == "embed(tokens, 8) = embed(; token_embd.weight[10x8])"
    assert lines[-1].endswith("= linear(output_norm; output.weight[10x8])")
