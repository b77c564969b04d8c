"""Sampling in the core: penalties, biases, log-probabilities, targets. Each token id's row of the table is its logits.

What is not a number gives no token and is reported as -1.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.native.in_memory import chunk, run
from tests.native.logits_table import DRAWS, ISAS, RANDOM, draws, executor_of, one
from tests.native.sampling_truth import adjusted, distribution, is_drawn_from, log_probabilities

from twostroke.native.batch import Sampling
from twostroke.native.executor import NativeExecutor


@pytest.fixture(scope="module")
def executor() -> NativeExecutor:
    return executor_of(RANDOM)


# --- penalties and bias -----------------------------------------------------------------------------------------------


def test_repetition_penalty_lowers_negative_logits_too() -> None:
    """Case ODD-08."""
    row = np.array([[-1.0, -1.2, -9, 2.0, 1.6]], np.float32)
    executor = executor_of(row[:, :3])
    assert one(executor, 0, Sampling(repetition_penalty=1.5), history=np.array([0], np.int32)).token_ids[0] == 1
    assert one(executor, 0, Sampling(repetition_penalty=1.1), history=np.array([0], np.int32)).token_ids[0] == 0
    executor = executor_of(row)
    assert one(executor, 0, Sampling(repetition_penalty=1.5), history=np.array([3], np.int32)).token_ids[0] == 4


@pytest.mark.parametrize("case", range(60))
def test_penalties_and_bias_against_the_truth(executor: NativeExecutor, case: int) -> None:
    """Random histories of prompt and generated tokens, ids repeated; the greedy token of the adjusted logits."""
    rng = np.random.default_rng(case)
    row, length = int(rng.integers(8)), int(rng.integers(1, 60))
    likely = np.argsort(-RANDOM[row])[:20]
    history = rng.choice(likely, length).astype(np.int32)
    history[-1] = row
    bias = tuple((int(token), float(rng.uniform(-2, 2))) for token in rng.choice(likely, 3, replace=False))
    sampling = Sampling(
        repetition_penalty=float(rng.choice([1.0, 1.3, 0.8])),
        presence_penalty=float(rng.choice([0.0, 0.7, -0.3])),
        frequency_penalty=float(rng.choice([0.1, 0.4, -0.2])),
        logit_bias=bias if case % 2 else (),
        num_logprobs=0,
    )
    num_prompt = int(rng.integers(1, length + 1))
    expected = adjusted(RANDOM[row], sampling, history, num_prompt)
    fields = {"history": history, "num_prompt_tokens": num_prompt, "start": length - 1}
    result = one(executor, row, sampling, **fields)
    token = int(result.token_ids[0])
    assert expected[token] >= expected.max() - 1e-5
    assert result.logprobs[0] == pytest.approx(log_probabilities(RANDOM[row])[token], abs=1e-5)


def test_penalties_of_an_output_see_the_tokens_before_it_only(executor: NativeExecutor) -> None:
    """Three outputs in one chunk: each is what it would be as the last of a shorter chunk."""
    best = RANDOM.argmax(axis=1)
    sampling = Sampling(presence_penalty=100.0)
    history = np.concatenate((best[:3], [0, 1, 2])).astype(np.int32)
    row = chunk([0, 1, 2], start=3, sampling=sampling, history=history, num_prompt_tokens=1)
    together = run(executor, row)[0].token_ids
    for index in range(3):
        fields = {"start": 3 + index, "history": history[: 4 + index].copy(), "num_prompt_tokens": 1}
        assert together[index] == one(executor, index, sampling, **fields).token_ids[0]


def test_bias_forces_and_forbids(executor: NativeExecutor) -> None:
    best = int(RANDOM[2].argmax())
    forbid = Sampling(temperature=1.0, logit_bias=((best, -1e9),))
    assert best in draws(executor, 2, Sampling(temperature=1.0)) and best not in draws(executor, 2, forbid)
    force = Sampling(temperature=1.0, logit_bias=((123, 100.0),), num_logprobs=2)
    result = one(executor, 2, force)
    assert result.token_ids[0] == 123
    assert result.logprobs[0] == pytest.approx(log_probabilities(RANDOM[2])[123], abs=1e-5)
    twice = one(executor, 2, replace(force, logit_bias=((123, 50.0), (123, 50.0))))
    assert (twice.token_ids[0], twice.logprobs[0]) == (123, result.logprobs[0])


def test_penalties_have_the_distribution(executor: NativeExecutor) -> None:
    sampling = Sampling(temperature=1.0, repetition_penalty=2.0, top_p=0.9)
    history = np.argsort(-RANDOM[3])[:5].astype(np.int32)
    truth = distribution(adjusted(RANDOM[3], sampling, [*history, 3]), sampling)
    fields = {"history": np.array([*history, 3], np.int32), "start": 5, "num_prompt_tokens": 6}
    chunks = [chunk([3], sampling=replace(sampling, seed=seed), **fields) for seed in range(DRAWS)]
    assert is_drawn_from(run(executor, *chunks)[0].token_ids, truth)


# --- what it reports --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", ISAS)
def test_log_probabilities_are_of_the_unmodified_logits(isa: str) -> None:
    executor = executor_of(RANDOM, isa)
    sampling = Sampling(temperature=0.5, top_k=3, logit_bias=((5, 3.0),), num_logprobs=7)
    result = run(executor, chunk(range(8), sampling=sampling))[0]
    truth = log_probabilities(RANDOM)
    np.testing.assert_allclose(result.logprobs, truth[range(8), result.token_ids], rtol=0, atol=2e-6)
    np.testing.assert_array_equal(result.top_ids, np.argsort(-RANDOM, axis=1, kind="stable")[:, :7])
    np.testing.assert_allclose(
        result.top_logprobs, np.take_along_axis(truth, result.top_ids, axis=1), rtol=0, atol=2e-6
    )


def test_alternatives_of_different_requests(executor: NativeExecutor) -> None:
    """As wide as the most asked for; shorter ones padded; none asked for, no log-probability."""
    counts = (3, -1, 0, 5)
    chunks = [chunk([i], sampling=Sampling(num_logprobs=n)) for i, n in enumerate(counts)]
    result = run(executor, *chunks)[0]
    assert result.top_ids.shape == (4, 5)
    assert (
        (result.top_ids >= 0).sum(axis=1).tolist()
        == np.isfinite(result.top_logprobs).sum(axis=1).tolist()
        == [3, 0, 0, 5]
    )
    assert np.isnan(result.logprobs).tolist() == [False, True, False, False]


def test_all_tokens_as_alternatives_ties_lowest_first() -> None:
    row = np.zeros((1, 40), np.float32)
    row[0, 30:] = 1
    result = one(executor_of(row), 0, Sampling(num_logprobs=40))
    assert result.top_ids[0].tolist() == [*range(30, 40), *range(30)]
    assert np.exp(result.top_logprobs[0].astype(np.float64)).sum() == pytest.approx(1, abs=1e-6)


def test_targets_are_scored_and_minus_one_samples(executor: NativeExecutor) -> None:
    targets = np.array([999, -1, 0, -1], np.int32)
    result = run(executor, chunk([0, 1, 2, 3], sampling=Sampling(num_logprobs=0), targets=targets))[0]
    expected = [999, RANDOM[1].argmax(), 0, RANDOM[3].argmax()]
    np.testing.assert_array_equal(result.token_ids, expected)
    np.testing.assert_allclose(result.logprobs, log_probabilities(RANDOM[:4])[range(4), expected], rtol=0, atol=2e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", [0, 500, 999, slice(None)])
@pytest.mark.parametrize(
    "sampling", [Sampling(num_logprobs=3), Sampling(temperature=1.0), Sampling(temperature=1.0, top_p=0.9)]
)
def test_logits_that_are_not_numbers_give_no_token(
    sampling: Sampling, where: int | slice, bad: float, isa: str
) -> None:
    rows = RANDOM[:3].copy()
    rows[1, where] = bad
    result = run(executor_of(rows, isa), chunk([0, 1, 2], sampling=sampling))[0]
    assert (result.token_ids < 0).tolist() == [False, True, False]
    assert np.isnan(result.logprobs[1])


def test_no_possible_token_gives_no_token() -> None:
    assert one(executor_of(np.full((1, 20), -np.inf, np.float32)), 0, Sampling()).token_ids[0] == -1
