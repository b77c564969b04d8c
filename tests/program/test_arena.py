"""The arena: values that live at the same time never share space, and values that do not may."""

from dataclasses import replace
from itertools import combinations

import pytest
from tests.program.samples import TINY

from twostroke.models.registry import build_program
from twostroke.program.builder import Builder
from twostroke.program.ops import Linear
from twostroke.program.passes import fuse, plan_arena
from twostroke.program.program import Program
from twostroke.program.values import Rows, Weight


def lifetimes(program: Program) -> dict[str, range]:
    """Op indices during which each value must keep its place: from the op that writes it through its last reader."""
    spans = {}
    for name in program.values:
        (written,) = [index for index, op in enumerate(program.ops) if name in op.outputs]
        uses = [index for index, op in enumerate(program.ops) if name in op.inputs]
        end = len(program.ops) if name in program.outputs.values() else max([written, *uses])
        spans[name] = range(written, end + 1)
    return spans


def assert_apart(program: Program) -> None:
    arena = plan_arena(program)
    assert arena.offsets.keys() == program.values.keys()
    spans = lifetimes(program)
    for a, b in combinations(program.values.values(), 2):
        together = a.rows is b.rows and set(spans[a.name]) & set(spans[b.name])
        if together:
            first, second = arena.offsets[a.name], arena.offsets[b.name]
            assert first + a.dim <= second or second + b.dim <= first, (a, b)
    for value in program.values.values():
        assert 0 <= arena.offsets[value.name] <= arena.dims[value.rows] - value.dim


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("outputs", [("logits",), ("logits", "hidden")], ids="+".join)
@pytest.mark.parametrize("is_fused", [False, True])
def test_live_values_are_apart(architecture: str, outputs: tuple[str, ...], is_fused: bool) -> None:
    program = build_program(replace(TINY, architecture=architecture), outputs)
    assert_apart(fuse(program) if is_fused else program)


def test_a_value_nobody_reads_is_not_under_its_sibling() -> None:
    b = Builder()
    x = b.embed("table", 50, 24)
    read = b.linear(x, "read", 16)
    b.output("logits", b.output_rows(read))
    program = b.build()
    embed, linear, rows = program.ops
    unread = replace(
        linear,
        results=("unread", read.name),
        matrices=(Weight("unread.weight", (16, 24)), *linear.matrices),
        biases=(None, None),
    )
    assert isinstance(linear, Linear)
    assert_apart(Program((embed, unread, rows), program.outputs))


def test_an_output_lives_to_the_end() -> None:
    b = Builder()
    x = b.embed("table", 50, 24)
    b.output("early", b.linear(x, "early", 24))
    b.output("late", b.linear(b.swiglu(x, x), "late", 24))
    assert_apart(b.build())


def test_space_is_reused() -> None:
    """Depth costs nothing: a value of layer 1 lies where one of layer 0 lay."""
    shallow, deep = (plan_arena(fuse(build_program(replace(TINY, num_layers=layers)))) for layers in (1, 12))
    assert deep.dims == shallow.dims
    q_dim, kv_dim, dim, ffn = TINY.q_dim, TINY.kv_dim, TINY.dim, TINY.ffn_dim
    assert shallow.dims[Rows.TOKENS] <= max(dim + 2 * q_dim + 2 * kv_dim, 2 * dim + ffn)
    assert shallow.dims[Rows.OUTPUTS] == dim + TINY.vocab_size
