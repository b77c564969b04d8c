"""Every family natively, where bits or tokens must be the same: chunks, neighbours, block tables, threads, formats.

And what a shorter KV type may change: the rounding of keys and values, nothing else.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.golden_families import FOLDER, IN_GGUF, NATIVE
from tests.models.family_gguf import write_family_gguf
from tests.native.in_memory import chunk, native, run

from twostroke.models.load import Model, dequantized, load_model
from twostroke.native.batch import Sampling
from twostroke.native.executor import NativeExecutor, available_isas
from twostroke.program import reference_attention
from twostroke.program.reference import ReferenceExecutor
from twostroke.program.reference_step import Cached, Step
from twostroke.program.values import CacheSpec

ISAS = available_isas()
CONTEXT, VOCAB = 64, 96
NUM_BLOCKS = 12  # of each cache group; a request takes 4


@pytest.fixture(scope="module", params=NATIVE)
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    made = load_model(FOLDER / request.param)
    yield made
    made.source.close()


def prompt(model: Model) -> np.ndarray:
    ids: np.ndarray = np.load(model.source.path / "golden.npz")["ids"]
    return ids


def executor_of(model: Model, isa: str = ISAS[-1], threads: int = 1, kv_type: str = "f32") -> NativeExecutor:
    blocks = (NUM_BLOCKS,) * len(model.program.cache_groups)
    settings = {"max_context": CONTEXT, "num_blocks": blocks, "max_step_tokens": 128}
    return native(model.program, model.source, isa, num_threads=threads, kv_type=kv_type, **settings)


def whole(model: Model, ids: np.ndarray, **settings: str) -> np.ndarray:
    return run(executor_of(model, **settings), chunk(ids))[1]


# --- the same bits ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(model: Model) -> list[tuple[np.ndarray, np.ndarray]]:
    """Three prompts, and what scalar code gives for each by itself."""
    rng = np.random.default_rng(16)
    prompts = [prompt(model), *(rng.integers(0, VOCAB, length) for length in (40, 23))]
    return [(ids, whole(model, ids, isa="scalar")) for ids in prompts]


@pytest.mark.parametrize(("size", "threads"), [(16, 1), (7, 2), (1, 3)])
def test_chunks_neighbours_and_block_tables(
    model: Model, alone: list[tuple[np.ndarray, np.ndarray]], size: int, threads: int
) -> None:
    """Two requests and part of a third share every step, each cache group has blocks of its own in an order of its own.

    Windows of 16 and 24 are crossed inside chunks and between them.
    """
    rng = np.random.default_rng(size)
    orders = [rng.permutation(NUM_BLOCKS).astype(np.int32) for _ in model.program.cache_groups]
    tables = [tuple(order[4 * i : 4 * i + 4].copy() for order in orders) for i in range(3)]
    prompts, expected = zip(*alone, strict=True)
    for isa in ISAS:
        executor = executor_of(model, isa, threads)
        for start in range(0, 40, size):
            here = [i for i, ids in enumerate(prompts) if start < len(ids)]
            chunks = [chunk(prompts[i][start : start + size], start, block_ids=tables[i]) for i in here]
            wanted = np.concatenate([expected[i][start : start + size] for i in here])
            np.testing.assert_array_equal(run(executor, *chunks)[1], wanted)


def test_what_is_computed_twice_is_the_same(model: Model) -> None:
    """As after a preemption: from the start, in other chunks, into blocks that others have used."""
    ids, executor = prompt(model), executor_of(model, threads=2)
    expected = whole(model, ids)
    for start, end in ((0, 31), (0, 5), (5, 40), (0, 40)):
        np.testing.assert_array_equal(run(executor, chunk(ids[start:end], start))[1], expected[start:end])


def test_each_cache_group_reads_its_own_blocks(model: Model) -> None:
    """Where one group's table names blocks that nobody has written, and only there, a row reads what is in them."""
    ids, executor = prompt(model), executor_of(model)
    groups = range(len(executor.num_blocks))
    right = tuple(np.arange(4, dtype=np.int32) + 4 * (group % 2) for group in groups)
    run(executor, chunk(ids[:-1], block_ids=right))
    for group in groups:
        wrong = tuple(blocks if other != group else blocks + 8 - blocks[0] for other, blocks in enumerate(right))
        assert np.isnan(run(executor, chunk(ids[-1:], 39, block_ids=wrong))[1]).all()
    _, got = run(executor, chunk(ids[-1:], 39, block_ids=right))
    np.testing.assert_array_equal(got, whole(model, ids)[-1:])


def test_another_token_changes_what_sees_it(model: Model) -> None:
    """A control: rows before it keep their bits, it and its successors do not."""
    ids = prompt(model).copy()
    expected = whole(model, ids)
    ids[20] = (ids[20] + 1) % VOCAB
    found = whole(model, ids)
    np.testing.assert_array_equal(found[:20], expected[:20])
    assert (found[20:] != expected[20:]).any(axis=1).all()


# --- the same tokens --------------------------------------------------------------------------------------------------


def answer(model: Model, ids: np.ndarray, sampling: Sampling, count: int = 20) -> list[int]:
    """The tokens generated after a prompt, from the default KV type."""
    executor = executor_of(model, kv_type="f16")
    tokens = run(executor, chunk(ids, num_outputs=1, sampling=sampling))[0].token_ids.tolist()
    for index in range(1, count):
        last = chunk(tokens[-1:], len(ids) + index - 1, sampling=sampling, output_index=index)
        tokens += run(executor, last)[0].token_ids.tolist()
    return tokens


@pytest.mark.parametrize("name", IN_GGUF)
def test_a_gguf_generates_what_its_checkpoint_does(name: str, tmp_path: Path) -> None:
    """Greedily, where some of these tiny models settle on a token, and with draws, where none does."""
    model = load_model(FOLDER / name)
    other = load_model(write_family_gguf(model.source.path, tmp_path / "model.gguf"))
    for ids in (prompt(model), prompt(model)[:3], prompt(model)[5:30]):
        for sampling in (Sampling(), Sampling(temperature=1.0, seed=4)):
            tokens = answer(model, ids, sampling)
            assert answer(other, ids, sampling) == tokens
        assert len(set(tokens)) > 5
    other.source.close()
    model.source.close()


# --- the rounding of keys and values ----------------------------------------------------------------------------------


def to_f16(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(np.float16).astype(x.dtype)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """To the nearest, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(x.dtype)


@pytest.mark.parametrize(("kv_type", "rounded"), [("f16", to_f16), ("bf16", to_bf16)], ids=["f16", "bf16"])
def test_shorter_kv_types_round_keys_and_values(
    model: Model, kv_type: str, rounded: Callable[[np.ndarray], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As float64 with the same rounding, which alone is a hundred times further away.

    What is left: a key or value within float32's error of a tie goes the other way. Most rows meet none.
    """
    ids = prompt(model)
    exact = ReferenceExecutor(model.program, dequantized(model.source), np.float64)
    unrounded = exact.forward(exact.new_state(), ids)["logits"]
    append = reference_attention._appended

    def append_rounded(cache: CacheSpec, written: list[np.ndarray], step: Step) -> Cached:
        return append(cache, [rounded(x) for x in written], step)

    monkeypatch.setattr(reference_attention, "_appended", append_rounded)
    expected = exact.forward(exact.new_state(), ids)["logits"]
    found = whole(model, ids, kv_type=kv_type)
    error, rounding = (np.sqrt(np.mean((found - truth) ** 2, axis=1)) / truth.std() for truth in (expected, unrounded))
    assert error.max() < 2e-3 and np.median(error) < 1e-4
    assert np.median(rounding[1:]) > 5 * np.median(error)
