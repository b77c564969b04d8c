"""Sampling in the core: greedy choice and draws. Each token id's row of the table is its logits.

The distribution that draws must have is stated in `sampling_truth`. Seeds are fixed: nothing here is left to chance.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.native.in_memory import chunk, run
from tests.native.logits_table import DRAWS, ISAS, RANDOM, VOCAB, draws, executor_of, one
from tests.native.sampling_truth import distribution, is_drawn_from

from twostroke.native.batch import Sampling
from twostroke.native.executor import NativeExecutor


@pytest.fixture(scope="module")
def executor() -> NativeExecutor:
    return executor_of(RANDOM)


# --- greedy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("ties", [(0, 999), (17, 900), (998, 999), (3, 4, 5), (15, 16), (511, 512), tuple(range(1000))])
def test_greedy_takes_the_lowest_of_equal_tokens(ties: Sequence[int], isa: str) -> None:
    row = RANDOM[:1].copy()
    row[0, list(ties)] = row.max() + 1
    assert one(executor_of(row, isa), 0, Sampling()).token_ids[0] == min(ties)


def test_zero_and_minus_zero_are_equal() -> None:
    row = np.full((1, 20), -1, np.float32)
    row[0, [7, 18]] = 0.0, -0.0
    assert one(executor_of(row), 0, Sampling()).token_ids[0] == 7
    assert one(executor_of(-np.abs(row)), 0, Sampling()).token_ids[0] == 7


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=2.0, top_k=1), Sampling(top_p=0.1, seed=9)])
def test_temperature_0_or_top_k_1_is_greedy(executor: NativeExecutor, sampling: Sampling) -> None:
    tokens = run(executor, chunk(range(8), sampling=sampling))[0].token_ids
    np.testing.assert_array_equal(tokens, RANDOM.argmax(axis=1))


# --- draws ------------------------------------------------------------------------------------------------------------

DISTRIBUTIONS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.7, seed=1),
    Sampling(temperature=2.5, seed=2**64 - 1),
    Sampling(temperature=1e6),
    Sampling(temperature=1.0, top_k=5),
    Sampling(temperature=1.5, top_k=40, seed=3),
    Sampling(temperature=1.0, top_p=0.5),
    Sampling(temperature=1.3, top_p=0.9, seed=4),
    Sampling(temperature=1.0, min_p=0.1),
    Sampling(temperature=2.0, min_p=0.3, seed=5),
    Sampling(temperature=1.2, top_k=50, top_p=0.8, min_p=0.02, seed=6),
    Sampling(temperature=1.0, top_k=VOCAB + 5),
    Sampling(temperature=1.0, top_p=1e-9),
    Sampling(temperature=1.0, min_p=1.0),
    Sampling(temperature=1.0, choice=2**32 - 1),
]


@pytest.mark.parametrize("row", [1, 3, 6])
@pytest.mark.parametrize("sampling", DISTRIBUTIONS, ids=lambda s: f"t{s.temperature}k{s.top_k}p{s.top_p}m{s.min_p}")
def test_draws_have_the_distribution(executor: NativeExecutor, sampling: Sampling, row: int) -> None:
    expected = distribution(RANDOM[row].astype(np.float64), sampling)
    tokens = draws(executor, row, sampling)
    assert is_drawn_from(tokens, expected)
    surely = expected > 20 / DRAWS  # missing one of these has a probability below 1e-8
    assert set(np.flatnonzero(surely)) <= set(tokens.tolist()) <= set(np.flatnonzero(expected))


def test_the_check_of_distributions_can_fail(executor: NativeExecutor) -> None:
    row, sampling = RANDOM[3].astype(np.float64), Sampling(temperature=1.0)
    tokens = draws(executor, 3, sampling)
    for other in (Sampling(temperature=1.1), Sampling(temperature=1.0, top_p=0.95)):
        assert not is_drawn_from(tokens, distribution(row, other))


@pytest.mark.parametrize("over", ["seed", "choice"])
def test_seeds_and_choices_are_independent(executor: NativeExecutor, over: str) -> None:
    """First tokens of many seeds, or of many choices of one seed, have the distribution too."""
    base = Sampling(temperature=1.0)
    chunks = [chunk([3], sampling=replace(base, **{over: value})) for value in range(DRAWS)]
    assert is_drawn_from(run(executor, *chunks)[0].token_ids, distribution(RANDOM[3].astype(np.float64), base))


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(temperature=1.0, top_k=3), {3, 4, 9}),  # 9 and 12 are equal: the lower stays
        (Sampling(temperature=1.0, top_p=0.49), {4}),
        (Sampling(temperature=1.0, top_p=0.51), {4, 3}),
        (Sampling(temperature=1.0, top_p=0.74), {4, 3}),
        (Sampling(temperature=1.0, top_p=0.76), {4, 3, 9}),
        (Sampling(temperature=1.0, top_p=0.88), {4, 3, 9, 12}),
        (Sampling(temperature=1.0, min_p=0.24), {3, 4, 9, 12}),
        (Sampling(temperature=1.0, min_p=0.26), {3, 4}),
        (Sampling(temperature=0.5, min_p=0.24), {3, 4}),  # after temperature 3 has a quarter of what 4 has
        (Sampling(temperature=0.5, min_p=0.26), {4}),
        (Sampling(temperature=1.0, top_k=2, top_p=0.66), {4}),  # of the two that top-k leaves, 4 has 0.667
        (Sampling(temperature=1.0, top_k=2, top_p=0.67), {3, 4}),
        (Sampling(temperature=1e6, top_k=4), {3, 4, 9, 12}),
        (Sampling(temperature=1e-6), {4}),
        (Sampling(temperature=1.0), {3, 4, 9, 12}),
    ],
    ids=str,
)
def test_truncation_keeps_exactly(sampling: Sampling, kept: set[int]) -> None:
    row = np.full((1, 20), -np.inf, np.float32)
    row[0, [4, 3, 9, 12]] = np.array([0, -1, -2, -2]) * math.log(2)  # 1/2, 1/4, 1/8, 1/8
    assert set(draws(executor_of(row), 0, sampling).tolist()) == kept


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-40, 1e-6, 1e-3])
def test_the_smallest_temperatures_choose_among_equal_tokens_only(temperature: float) -> None:
    row = RANDOM[:1].copy()
    row[0, [100, 700]] = row.max() + 1
    executor = executor_of(row)
    for extra in ({}, {"top_p": 0.99}, {"top_k": 5}, {"min_p": 0.5}):
        tokens = draws(executor, 0, Sampling(temperature=temperature, **extra))
        counts = np.bincount(tokens, minlength=VOCAB)
        assert counts[100] + counts[700] == DRAWS and abs(counts[100] - DRAWS / 2) < 5 * math.sqrt(DRAWS / 4)


@pytest.mark.parametrize("temperature", [1e6, 1e38, 1e300])
def test_the_largest_temperatures_are_uniform_over_possible_tokens(temperature: float) -> None:
    """Case ODD-07."""
    row = RANDOM[:1].copy()
    row[0, ::10] = -np.inf
    expected = np.where(np.isfinite(row[0]), 1 / 900, 0)
    assert is_drawn_from(draws(executor_of(row), 0, Sampling(temperature=temperature)), expected)


@pytest.mark.parametrize("sampling", [DISTRIBUTIONS[i] for i in (0, 6, 8, 10)], ids=str)
def test_a_draw_depends_on_seed_choice_and_index_alone(executor: NativeExecutor, sampling: Sampling) -> None:
    """Whatever the batch, the row in it, the instruction set: the same token. Another seed, choice or index: others."""
    expected = draws(executor, 4, sampling, 50)
    neighbours = [chunk([row], sampling=Sampling(temperature=1.0, seed=row)) for row in range(8)]
    for index in (0, 1, 49):
        mine = chunk([4], sampling=sampling, output_index=index)
        tokens = run(executor, *neighbours, mine, *neighbours)[0].token_ids
        assert tokens[8] == expected[index]
    for isa in ISAS:
        np.testing.assert_array_equal(draws(executor_of(RANDOM, isa), 4, sampling, 50), expected)
    for change in ({"seed": sampling.seed ^ 1}, {"seed": sampling.seed ^ 2**63}, {"choice": sampling.choice + 1}):
        assert (draws(executor, 4, replace(sampling, **change), 50) != expected).sum() > 10
