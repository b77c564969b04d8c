"""Steps between submission and collection: the threads besides the caller's are at work, and nothing is lost."""

import time

import numpy as np
import pytest
from tests.native.in_memory import batch_of, chunk
from tests.native.test_checks import executor_of, program

from twostroke.native.batch import Batch
from twostroke.native.executor import NativeExecutor

THREADS = (1, 2, 3)


def step_at(executor: NativeExecutor, start: int, length: int = 4) -> Batch:
    return batch_of(executor, chunk([1 + (start + i) % 7 for i in range(length)], start))


def value_of(executor: NativeExecutor, batch: Batch) -> np.ndarray:
    return executor.collect_value(executor.submit(batch, "logits"))[1].copy()


@pytest.mark.parametrize("num_threads", THREADS)
def test_when_it_is_collected_changes_no_bit(num_threads: int) -> None:
    executor = executor_of(program(), num_threads=num_threads)
    expected = [value_of(executor, step_at(executor, start)) for start in (0, 4, 8)]
    for start, wanted in zip((0, 4, 8), expected, strict=True):
        handle = executor.submit(step_at(executor, start), "logits")
        time.sleep(0.02 * (start > 0))  # others have done it all, and parked
        result, value = executor.collect_value(handle)
        np.testing.assert_array_equal(value, wanted)
        assert result.seconds > 0
        again, _ = executor.collect_value(handle)
        np.testing.assert_array_equal(again.token_ids, result.token_ids)
        assert again.seconds == result.seconds


@pytest.mark.parametrize("num_threads", THREADS[1:])
def test_other_threads_need_no_caller(num_threads: int) -> None:
    """What a step took is counted to its end, not to when somebody asked."""
    executor = executor_of(program(), num_threads=num_threads)
    handle = executor.submit(step_at(executor, 0))
    time.sleep(0.3)
    assert 0 < executor.collect(handle).seconds < 0.25


@pytest.mark.parametrize("num_threads", THREADS)
def test_a_step_that_nobody_collects_is_done_before_the_next(num_threads: int) -> None:
    executor = executor_of(program(), num_threads=num_threads)
    expected = [value_of(executor, step_at(executor, start)) for start in (0, 4)]
    executor.poison()
    first = executor.submit(step_at(executor, 0), "logits")
    second = executor.submit(step_at(executor, 4), "logits")  # reads the keys of the first
    for handle, wanted in zip((second, first), (expected[1], expected[0]), strict=True):
        np.testing.assert_array_equal(executor.collect_value(handle)[1], wanted)


@pytest.mark.parametrize("num_threads", THREADS)
def test_dropped_handles_and_executors_end_their_step(num_threads: int) -> None:
    """What the threads write to is there until they have ended."""
    for _ in range(30):
        executor = executor_of(program(), num_threads=num_threads)
        handle = executor.submit(step_at(executor, 0), "logits")
        del handle
        left = executor.submit(step_at(executor, 4), "logits")
        del executor
        assert left.value is not None and left.value.shape[0] == left.batch.num_outputs
        del left


def test_a_value_must_be_asked_for_when_submitting() -> None:
    executor = executor_of(program())
    with pytest.raises(ValueError, match="no output of the program"):
        executor.collect_value(executor.submit(step_at(executor, 0)))
