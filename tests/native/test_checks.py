"""Wrong numbers in a batch are refused before anything runs, and the executor works on. Threads, oversubscribed too."""

import subprocess
import sys

import numpy as np
import pytest
from tests.native.in_memory import MemorySource, batch_of, chunk, native, run

from twostroke.errors import ConfigError
from twostroke.native.batch import Batch, Sampling
from twostroke.native.executor import NativeExecutor, available_isas
from twostroke.program.builder import Builder
from twostroke.program.program import Program
from twostroke.program.values import CacheSpec

VOCAB, CONTEXT, BLOCKS, ROWS = 40, 128, 12, 64


def program(embeddings: int = VOCAB) -> Program:
    b = Builder()
    x = b.embed("x", embeddings, 32)
    for layer in b.layers(2):
        q, k, v = (b.linear(x, layer / name, 32) for name in "qkv")
        x = b.add(
            x, b.linear(b.attention(q, k, v, CacheSpec(layer / "kv", 2, 16, 20 if layer.index else None)), "o", 32)
        )
    b.output("logits", b.linear(b.output_rows(x), "head", VOCAB))
    return b.build()


def executor_of(made: Program, **settings: object) -> NativeExecutor:
    rng = np.random.default_rng(0)
    source = MemorySource({name: rng.standard_normal(w.shape) * 0.2 for name, w in made.weights.items()})
    defaults = {"max_context": CONTEXT, "num_blocks": (BLOCKS, BLOCKS + 1), "max_step_tokens": ROWS}
    return native(made, source, **{"isa": available_isas()[-1], **defaults, **settings})


@pytest.fixture(scope="module")
def executor() -> NativeExecutor:
    return executor_of(program())


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def good(executor: NativeExecutor) -> Batch:
    return batch_of(executor, chunk(range(20), num_outputs=2), chunk([3], start=40, num_outputs=1))


WRONG = {
    "token id beyond the vocabulary": {"token_ids": ids(0, VOCAB)},
    "negative token id": {"token_ids": ids(0, -1)},
    "no tokens": {"token_ids": ids(), "num_outputs": 0},
    "more rows than a step has": {"token_ids": np.zeros(ROWS + 1, np.int32)},
    "negative start": {"start": -1},
    "start beyond the context": {"start": CONTEXT},
    "start that overflows": {"start": 2**62},
    "end beyond the context": {"start": CONTEXT - 1, "token_ids": ids(1, 2)},
    "negative outputs": {"num_outputs": -1},
    "more outputs than rows": {"num_outputs": 3},
    "no block table": {"block_ids": ()},
    "a block table too many": {"block_ids": (ids(0, 1), ids(0, 1), ids(0, 1))},
    "blocks that do not cover the tokens": {"block_ids": (ids(0), ids()), "start": 5},
    "block beyond the pool": {"block_ids": (ids(BLOCKS), ids(0))},
    "block beyond the other pool": {"block_ids": (ids(0), ids(BLOCKS + 1))},
    "negative block": {"block_ids": (ids(0), ids(-1))},
    "too few targets": {"num_outputs": 2, "targets": ids(1)},
    "too many targets": {"targets": ids(1, 2, 3)},
    "target beyond the vocabulary": {"targets": ids(VOCAB)},
    "target below -1": {"targets": ids(-2)},
    "logit bias beyond the vocabulary": {"sampling": Sampling(logit_bias=((VOCAB, 1.0),))},
    "logit bias of a negative token": {"sampling": Sampling(logit_bias=((-1, 1.0),))},
    "penalties without a history": {"sampling": Sampling(repetition_penalty=1.1)},
    "a history too short": {"sampling": Sampling(presence_penalty=1.0), "history": ids(1)},
    "a history too long": {"sampling": Sampling(frequency_penalty=1.0), "history": ids(1, 2, 3)},
    "a mask too short": {"mask": np.zeros(1, np.uint32)},
    "a mask too long": {"mask": np.zeros(-(-VOCAB // 32) + 1, np.uint32)},
    "more log-probabilities than tokens": {"sampling": Sampling(num_logprobs=VOCAB + 1)},
    "log-probabilities below none": {"sampling": Sampling(num_logprobs=-2)},
}


@pytest.mark.parametrize("position", ["alone", "first", "last"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_numbers_are_refused(executor: NativeExecutor, wrong: str, position: str) -> None:
    before = run_batch(executor, good(executor))
    (fine,) = batch_of(executor, chunk([1, 2], num_outputs=1)).chunks
    bad = fine._replace(**WRONG[wrong])
    chunks = {"alone": (bad,), "first": (bad, fine), "last": (fine, bad)}[position]
    with pytest.raises(ValueError, match=r"\d|chunk|table|history|tokens"):
        executor.submit(Batch(chunks))
    np.testing.assert_array_equal(run_batch(executor, good(executor)), before)


def run_batch(executor: NativeExecutor, batch: Batch) -> np.ndarray:
    return executor.collect_value(executor.submit(batch, "logits"))[1]


def test_an_empty_batch_is_refused(executor: NativeExecutor) -> None:
    with pytest.raises(ValueError, match="chunks"):
        executor.submit(Batch(()))


def test_token_ids_are_those_of_the_embedding_table() -> None:
    """Fewer than the vocabulary of the logits: the smaller number counts."""
    small = executor_of(program(embeddings=VOCAB - 8))
    assert run(small, chunk([VOCAB - 9]))[1].shape == (1, VOCAB)
    with pytest.raises(ValueError, match=f"token id {VOCAB - 8} outside 0..{VOCAB - 9}"):
        run(small, chunk([VOCAB - 8]))


def test_an_instruction_set_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'mmx'.*scalar"):
        executor_of(program(), isa="mmx")


def test_a_step_without_outputs(executor: NativeExecutor) -> None:
    result, logits = run(executor, chunk([1, 2, 3], num_outputs=0))
    assert len(result.token_ids) == 0 and logits.shape == (0, VOCAB)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_threads_give_the_same_bits(threads: int) -> None:
    """More threads than CPUs, too; steps follow each other at once and after the workers have parked."""
    one, many = executor_of(program()), executor_of(program(), num_threads=threads)
    for start in (0, 64):
        for executor in (one, many):
            run(executor, chunk(np.arange(64) % VOCAB, start=start, num_outputs=0))
    for step in range(30):
        batch = batch_of(
            one,
            chunk(np.arange(30 + step) % VOCAB, num_outputs=1 + step),
            chunk([step], start=100 + step % 20, block_ids=(np.arange(8, dtype=np.int32),) * 2),
        )
        expected = run_batch(one, batch)
        assert np.isfinite(expected).all()
        np.testing.assert_array_equal(run_batch(many, batch), expected)


def test_executors_end_with_their_threads() -> None:
    """Made, used or not, and dropped: no thread is left, nothing hangs."""
    before = num_threads()
    for index in range(20):
        made = executor_of(program(), num_threads=3)
        if index % 2:
            run(made, chunk([1]))
        assert num_threads() == before + 2
        del made
    assert num_threads() == before


def test_threads_that_the_system_refuses_are_an_error() -> None:
    """And not the end of the process. In one of its own, since a limit cannot be taken back."""
    code = (
        "import resource; from tests.native.test_checks import *;"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize(); before = num_threads();"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26));"
        "pytest.raises(ConfigError, executor_of, program(), num_threads=64).match('threads: .* not start 64');"
        "print(num_threads() - before)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (found.returncode, found.stdout, found.stderr) == (0, "0\n", "")


def num_threads() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return int(next(line for line in status if line.startswith("Threads")).split()[1])
