"""Ops of encoders against their definitions written as loops, and what they cost."""

import numpy as np
import pytest
from tests.program.samples import random_weights

from twostroke.program.builder import Builder
from twostroke.program.cost import CostModel, Storage
from twostroke.program.cost_units import ChunkShape
from twostroke.program.op import ProgramError
from twostroke.program.program import Program
from twostroke.program.reference import ReferenceExecutor

IDS = np.random.default_rng(0).integers(0, 30, 7)


def attention_program() -> Program:
    b = Builder()
    x = b.embed("table", 30, 8)
    q, k, v = (b.linear(x, name, 8) for name in "qkv")
    b.output("y", b.encoder_attention(q, k, v, "attention", 2))
    return b.build()


def test_every_row_sees_every_row() -> None:
    program = attention_program()
    weights = random_weights(program)
    executor = ReferenceExecutor(program, weights, np.float64)
    x = weights("table.weight")[IDS]
    q, k, v = (x @ weights(f"{name}.weight").T for name in "qkv")
    expected = np.zeros_like(q)
    for row in range(len(IDS)):
        for head in (slice(0, 4), slice(4, 8)):
            shares = np.exp(k[:, head] @ q[row, head] / 2)
            expected[row, head] = shares @ v[:, head] / shares.sum()
    found = executor.forward(executor.new_state(), IDS)["y"]
    np.testing.assert_allclose(found, expected)


def test_a_request_is_taken_whole() -> None:
    executor = ReferenceExecutor(program := attention_program(), random_weights(program), np.float64)
    state = executor.new_state()
    executor.forward(state, IDS[:3])
    with pytest.raises(ValueError, match="not its rows from 3 on"):
        executor.forward(state, IDS[3:])
    assert not program.caches


def test_positions_from_a_row_on_and_one_vector_for_all() -> None:
    b = Builder()
    x = b.add_position(b.embed("table", 30, 8), "positions", 9, first=2)
    b.output("y", b.add_vector(x, "kinds", 3))
    weights = random_weights(program := b.build())
    executor = ReferenceExecutor(program, weights, np.float64)
    found = executor.forward(executor.new_state(), IDS)["y"]
    expected = weights("table.weight")[IDS] + weights("positions.weight")[2:9] + weights("kinds.weight")[0]
    np.testing.assert_allclose(found, expected)
    with pytest.raises(IndexError, match="position 9 is beyond the 9"):
        executor.forward(executor.new_state(), np.append(IDS, 1))


def test_scores_grow_with_the_square() -> None:
    """Each of n rows: n products of 8 with keys, as many with values, and 4 FLOPs of softmax a score and head."""
    program = attention_program()
    model = CostModel(program, Storage(dict.fromkeys(program.weights, 16.0)))
    for rows in (1, 7, 100):
        cost = model.step([ChunkShape(0, rows, 1)])
        assert cost.flops == rows * 3 * 2 * 8 * 8 + rows * rows * (2 * 2 * 8 + 2 * 4)
        assert cost.kv_bytes == 0


@pytest.mark.parametrize(("dim", "heads", "message"), [(8, 3, "into 3 heads"), (6, 2, "not heads like")])
def test_misfits_are_refused(dim: int, heads: int, message: str) -> None:
    b = Builder()
    x = b.embed("table", 30, 8)
    with pytest.raises(ProgramError, match=message):
        b.encoder_attention(x, b.linear(x, "k", dim), x, "attention", heads)
