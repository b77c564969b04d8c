"""Ops beside the usual ones, against their definitions: shared caches, norms without weights, positions."""

import math

import numpy as np
import pytest
from tests.program.samples import random_weights

from twostroke.program.builder import Builder
from twostroke.program.cost import CostModel, Storage, kv_bytes_per_token
from twostroke.program.cost_units import ChunkShape
from twostroke.program.op import ProgramError
from twostroke.program.ops import Attention
from twostroke.program.program import Program
from twostroke.program.reference import ReferenceExecutor
from twostroke.program.values import CacheSpec

IDS = np.random.default_rng(0).integers(0, 30, 20)


def outputs(program: Program, chunks: tuple[int, ...] = ()) -> np.ndarray:
    executor = ReferenceExecutor(program, random_weights(program), np.float64)
    state = executor.new_state()
    return np.concatenate([executor.forward(state, part)["y"] for part in np.split(IDS, chunks)])


def two_attentions(*, shared: bool) -> Program:
    b = Builder()
    x = b.embed("table", 30, 8)
    k, v = b.linear(x, "k", 4), b.linear(x, "v", 4)
    first, second = (CacheSpec(name, 1, 4, window=6) for name in ("first", "first" if shared else "second"))
    y = b.attention(b.linear(x, "q", 8), k, v, first)
    b.output("y", b.attention(b.linear(y, "r", 8), None if shared else k, None if shared else v, second))
    return b.build()


@pytest.mark.parametrize("chunks", [(), (1, 7, 8)])
def test_a_shared_cache_gives_what_a_second_one_of_the_same_keys_gives(chunks: tuple[int, ...]) -> None:
    shared, own = (two_attentions(shared=each) for each in (True, False))
    np.testing.assert_array_equal(outputs(shared, chunks), outputs(own, chunks))
    assert [len(program.caches) for program in (shared, own)] == [1, 2]
    storage = Storage(dict.fromkeys(own.weights, 16.0))
    per_token = [kv_bytes_per_token(program, storage) for program in (shared, own)]
    assert per_token == [16, 32]
    written_and_read = [CostModel(p, storage).step([ChunkShape(3, 1, 1)]).kv_bytes for p in (shared, own)]
    assert written_and_read == [(1 + 2 * 4) * 16, (2 + 2 * 4) * 16]


def test_keys_are_not_written_without_values_nor_one_cache_in_two_shapes() -> None:
    b = Builder()
    x = b.embed("table", 30, 8)
    with pytest.raises(ProgramError, match="written with values"):
        b.attention(x, x, None, CacheSpec("cache", 2, 4))
    b.attention(x, x, x, CacheSpec("cache", 2, 4))
    y = b.attention(x, None, None, CacheSpec("cache", 2, 4, window=3))
    b.output("y", y)
    assert isinstance(b.build().ops[-1], Attention)
    with pytest.raises(ProgramError, match="used in two shapes"):
        b.build().caches  # noqa: B018


@pytest.mark.parametrize("chunks", [(), (1, 7, 8)])
@pytest.mark.parametrize("shift", [0, 1])
def test_positions(shift: int, chunks: tuple[int, ...]) -> None:
    b = Builder()
    x = b.embed("table", 30, 8)
    added = b.add_position(x, "positions", 20)
    scaled = b.scale_by_position(added, 4, 0.3, shift)
    b.output("y", b.scale_by_weight(b.unit_norm(scaled, 1e-5, group_dim=4), "scale"))
    program = b.build()
    weights = random_weights(program)
    for row, (token, found) in enumerate(zip(IDS, outputs(program, chunks), strict=True)):
        y = weights("table.weight")[token] + weights("positions.weight")[row]
        y = y * (1 + 0.3 * math.log(1 + (row + shift) // 4))
        halves = [part / math.sqrt((part**2).mean() + 1e-5) for part in (y[:4], y[4:])]
        np.testing.assert_allclose(found, np.concatenate(halves) * weights("scale.weight"))


def test_there_is_no_position_beyond_the_table() -> None:
    b = Builder()
    b.output("y", b.add_position(b.embed("table", 30, 8), "positions", 19))
    with pytest.raises(IndexError, match="position 19 is beyond the 19"):
        outputs(b.build())
