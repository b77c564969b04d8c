"""Blocks of the KV pools as bytes, and executors after a fork."""

import os
import signal
import time

import numpy as np
import pytest
from tests.native.in_memory import chunk, run
from tests.native.test_checks import BLOCKS, VOCAB, executor_of, good, program, run_batch

from twostroke.errors import ConfigError
from twostroke.native.executor import NativeExecutor


@pytest.fixture
def executor() -> NativeExecutor:
    return executor_of(program())


def test_a_block_moves_with_all_its_layers_and_groups(executor: NativeExecutor) -> None:
    """Rows that read the copy, at other block ids, get the same bits; block 5 of the copy is not touched."""
    prompt = np.arange(20) % VOCAB
    run(executor, chunk(prompt, block_ids=(np.array([1, 2], np.int32), np.array([3, 4], np.int32)), num_outputs=0))
    last = {"start": 20, "num_outputs": 1}
    here = (np.array([1, 2], np.int32), np.array([3, 4], np.int32))
    expected = run(executor, chunk([7], block_ids=here, **last))[1]
    other = executor_of(program())
    other.poison()
    for block_ids, copy_ids in (((1, 3), (6, 2)), ((2, 4), (0, 7))):
        data = executor.export_blocks(block_ids)
        assert data.nbytes == executor.block_bytes
        data.flags.writeable = False
        other.import_blocks(copy_ids, data)
        np.testing.assert_array_equal(other.export_blocks(copy_ids), data)
    there = (np.array([6, 0], np.int32), np.array([2, 7], np.int32))
    np.testing.assert_array_equal(run(other, chunk([7], block_ids=there, **last))[1], expected)
    assert (other.export_blocks((5, 5)) == 255).all()


@pytest.mark.parametrize("block_ids", [(), (0,), (0, 0, 0), (-1, 0), (0, -1), (BLOCKS, 0), (0, BLOCKS + 1)])
def test_wrong_blocks_are_refused(executor: NativeExecutor, block_ids: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="block"):
        executor.export_blocks(block_ids)
    with pytest.raises(ValueError, match="block"):
        executor.import_blocks(block_ids, np.zeros(executor.block_bytes, np.uint8))


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_wrong_number_of_bytes_is_refused(executor: NativeExecutor, difference: int) -> None:
    with pytest.raises(ValueError, match="bytes for blocks of"):
        executor.import_blocks((0, 0), np.zeros(executor.block_bytes + difference, np.uint8))


@pytest.mark.parametrize("under_way", [False, True])
def test_a_fork_refuses_to_run_and_ends(under_way: bool) -> None:
    """In the child the threads are not there: a step is refused with a clear error, and dropping the executor hangs
    nobody, nor a step that was under way. The parent goes on."""
    executor = executor_of(program(), num_threads=3)
    before = run_batch(executor, good(executor))
    time.sleep(0.05)  # workers park
    handle = executor.submit(good(executor)) if under_way else None
    child = os.fork()
    if not child:
        status = 1
        try:
            executor.submit(good(executor)) if handle is None else executor.collect(handle)
        except ConfigError as error:
            status = 0 if "fork" in str(error) else 2
        del executor, handle
        os._exit(status)
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0), "the child hangs" if ended == (0, 0) else ended
    np.testing.assert_array_equal(run_batch(executor, good(executor)), before)
