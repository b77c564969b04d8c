"""Sampling in the core under a mask: what may be drawn, from which distribution, and what is reported of it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.native.in_memory import chunk, run
from tests.native.logits_table import DRAWS, ISAS, RANDOM, VOCAB, executor_of, one
from tests.native.sampling_truth import adjusted, distribution, is_drawn_from, log_probabilities

from twostroke.native.batch import Mask, Sampling
from twostroke.native.executor import NativeExecutor


@pytest.fixture(scope="module")
def executor() -> NativeExecutor:
    return executor_of(RANDOM)


def mask_of(*token_ids: int) -> Mask:
    """A mask that allows these tokens."""
    mask = np.zeros(-(-VOCAB // 32), np.uint32)
    for token in token_ids:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


@pytest.mark.parametrize("isa", ISAS)
def test_greedy_takes_the_best_of_those_allowed(isa: str) -> None:
    executor = executor_of(RANDOM, isa)
    rng = np.random.default_rng(3)
    for row in range(8):
        for count in (1, 2, 30, 999):
            allowed = rng.choice(VOCAB, count, replace=False)
            result = one(executor, row, Sampling(), mask=mask_of(*allowed))
            assert result.token_ids[0] == allowed[RANDOM[row, allowed].argmax()]


@pytest.mark.parametrize("token", [0, 31, 32, 511, 512, 991, 992, 999])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(temperature=1.0), Sampling(temperature=2.0, top_k=40), Sampling(temperature=0.3, top_p=0.5)],
)
def test_the_only_token_allowed_is_taken(executor: NativeExecutor, token: int, sampling: Sampling) -> None:
    mask = mask_of(token)
    chunks = [chunk([row], sampling=replace(sampling, seed=s), mask=mask) for row in range(8) for s in range(9)]
    assert set(run(executor, *chunks)[0].token_ids.tolist()) == {token}


@pytest.mark.parametrize("row", [1, 3, 6])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=2.5, seed=7),
        Sampling(temperature=1.0, top_k=5),
        Sampling(temperature=1.3, top_k=400),
        Sampling(temperature=1.3, top_p=0.9),
        Sampling(temperature=2.0, min_p=0.1),
        Sampling(temperature=1.0, logit_bias=((5, 100.0), (10, 3.0))),
    ],
)
def test_draws_have_the_distribution_of_those_allowed(executor: NativeExecutor, sampling: Sampling, row: int) -> None:
    """Top-k, top-p and min-p see the allowed tokens alone; a bias does not allow what the mask forbids (token 5)."""
    allowed = np.arange(0, VOCAB, 10)
    masked = np.full(VOCAB, -np.inf)
    masked[allowed] = adjusted(RANDOM[row], sampling)[allowed]
    tokens = run(executor, chunk([row] * DRAWS, sampling=sampling, mask=mask_of(*allowed)))[0].token_ids
    assert is_drawn_from(tokens, distribution(masked, sampling))


def test_log_probabilities_are_those_without_the_mask(executor: NativeExecutor) -> None:
    sampling = Sampling(num_logprobs=3)
    free, masked = (one(executor, 2, sampling, **fields) for fields in ({}, {"mask": mask_of(7)}))
    assert masked.token_ids[0] == 7 != free.token_ids[0]
    assert masked.logprobs[0] == pytest.approx(log_probabilities(RANDOM[2])[7], abs=2e-6)
    np.testing.assert_array_equal(masked.top_ids, free.top_ids)
    np.testing.assert_array_equal(masked.top_logprobs, free.top_logprobs)


def test_a_mask_is_its_own_requests_and_spares_targets(executor: NativeExecutor) -> None:
    best = RANDOM.argmax(axis=1)
    scored = chunk([1, 2], mask=mask_of(9), targets=np.array([4, -1], np.int32))
    result = run(executor, chunk([0]), scored, chunk([3]))[0]
    assert result.token_ids.tolist() == [best[0], 4, 9, best[3]]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, top_k=9)])
def test_nothing_allowed_gives_no_token(executor: NativeExecutor, sampling: Sampling) -> None:
    mask = mask_of()
    mask[-1] = 1 << 31  # beyond the vocabulary
    assert one(executor, 0, sampling, mask=mask).token_ids[0] == -1
