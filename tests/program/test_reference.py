"""The reference executor: ops against their definitions written as loops, chunks, state, dtypes, refusals."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.program.samples import TINY, random_ids, random_weights

from twostroke.models.config import ModelConfig
from twostroke.models.registry import build_program
from twostroke.program.builder import Builder
from twostroke.program.passes import fuse
from twostroke.program.program import Program
from twostroke.program.reference import ReferenceExecutor
from twostroke.program.values import CacheSpec


def run(program: Program, ids: np.ndarray, chunks: list[int]) -> np.ndarray:
    """Logits of every row, the tokens given in chunks of these lengths."""
    executor = ReferenceExecutor(program, random_weights(program), np.float64)
    state = executor.new_state()
    parts = np.split(ids, np.cumsum(chunks)[:-1])
    logits = np.concatenate([executor.forward(state, part)["logits"] for part in parts])
    assert state.num_tokens == len(ids)
    return logits


@pytest.mark.parametrize("config", [TINY, replace(TINY, architecture="qwen2")], ids=["llama", "qwen2"])
@pytest.mark.parametrize("chunks", [[1] * 30, [7, 16, 7], [29, 1]], ids=str)
def test_chunks_give_what_the_whole_gives(config: ModelConfig, chunks: list[int]) -> None:
    program = fuse(build_program(config))
    ids = random_ids(30)
    np.testing.assert_allclose(run(program, ids, chunks), run(program, ids, [30]), rtol=1e-11, atol=1e-11)


def test_a_row_sees_no_later_token() -> None:
    program = build_program(TINY)
    ids = random_ids(20)
    changed = ids.copy()
    changed[12] = (changed[12] + 1) % TINY.vocab_size
    before, after = run(program, ids, [20]), run(program, changed, [20])
    np.testing.assert_array_equal(before[:12], after[:12])
    assert (np.abs(before[12:] - after[12:]).max(axis=1) > 1e-3).all()


@dataclass(frozen=True)
class Softmax:
    """How scores become weights: `window` keys at most, `scale` and `cap` of scores, `sinks` a head."""

    window: int | None = None
    scale: float = 0.7
    cap: float | None = None
    sinks: np.ndarray | None = None


def attention_by_loops(q: np.ndarray, k: np.ndarray, v: np.ndarray, softmax: Softmax) -> np.ndarray:
    """q (n, heads, d), k and v (n, kv_heads, d): one softmax a row and head, over the keys that it sees."""
    out = np.zeros_like(q)
    for row, head in np.ndindex(q.shape[:2]):
        kv_head = head // (q.shape[1] // k.shape[1])
        seen = slice(0 if softmax.window is None else max(0, row - softmax.window + 1), row + 1)
        scores = softmax.scale * (k[seen, kv_head] @ q[row, head])
        if softmax.cap is not None:
            scores = softmax.cap * np.tanh(scores / softmax.cap)
        weights = np.exp(scores)
        total = weights.sum() + (0 if softmax.sinks is None else math.exp(softmax.sinks[head]))
        out[row, head] = weights / total @ v[seen, kv_head]
    return out


@pytest.mark.parametrize("window", [None, 1, 5, 1000])
@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)], ids=str)
@pytest.mark.parametrize(("cap", "has_sinks"), [(None, False), (0.5, False), (None, True), (0.5, True)], ids=str)
def test_attention_is_its_definition(
    window: int | None, heads: tuple[int, int], cap: float | None, has_sinks: bool
) -> None:
    """Over 300 rows, more than attention takes at once, in two chunks."""
    num_heads, num_kv_heads = heads
    b = Builder()
    x = b.embed("table", 50, 16)
    q, k, v = (b.linear(x, name, 8 * n) for name, n in (("q", num_heads), ("k", num_kv_heads), ("v", num_kv_heads)))
    cache, sinks = CacheSpec("cache", num_kv_heads, 8, window), "sinks" if has_sinks else None
    b.output("out", b.output_rows(b.attention(q, k, v, cache, scale=0.7, soft_cap=cap, sinks=sinks)))
    program = b.build()
    weights = random_weights(program)
    executor = ReferenceExecutor(program, weights, np.float64)
    state, ids = executor.new_state(), random_ids(300)
    found = np.concatenate([executor.forward(state, part)["out"] for part in (ids[:9], ids[9:])])
    x_rows = weights("table.weight")[ids]
    q_rows, k_rows, v_rows = ((x_rows @ weights(f"{name}.weight").T).reshape(300, -1, 8) for name in "qkv")
    softmax = Softmax(window, cap=cap, sinks=weights("sinks.weight") if has_sinks else None)
    expected = attention_by_loops(q_rows, k_rows, v_rows, softmax)
    np.testing.assert_allclose(found, expected.reshape(300, -1), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("chunks", [[300], [1] * 300, [200, 100]], ids=["one chunk", "token by token", "two chunks"])
def test_a_window_counts_the_token_itself(chunks: list[int]) -> None:
    """With a window of 128 the last row sees the token 127 back, and none before it."""
    b = Builder()
    x = b.embed("table", 50, 8)
    b.output("logits", b.output_rows(b.attention(x, x, x, CacheSpec("cache", 1, 8, 128))))
    program, ids = b.build(), random_ids(300)
    before = run(program, ids, chunks)[-1]
    for back, is_seen in ((127, True), (128, False)):
        changed = ids.copy()
        changed[299 - back] = (changed[299 - back] + 1) % 50
        assert bool(np.abs(run(program, changed, chunks)[-1] - before).max() > 1e-6) == is_seen


def test_norm_bias_swiglu_and_add_are_their_definitions() -> None:
    b = Builder()
    x = b.embed("table", 50, 16)
    gate = b.linear(b.rms_norm(x, "norm", 0.1), "gate", 16, bias=True)
    b.output("out", b.output_rows(b.add(b.swiglu(gate, x), x)))
    program = b.build()
    weights = random_weights(program)
    executor = ReferenceExecutor(program, weights, np.float64)
    ids = random_ids(6)
    found = executor.forward(executor.new_state(), ids)["out"]
    for row, token in enumerate(ids):
        x_row = weights("table.weight")[token]
        root = math.sqrt(sum(value**2 for value in x_row) / 16 + 0.1)
        gate_row = weights("gate.weight") @ (x_row / root * weights("norm.weight")) + weights("gate.bias")
        silu = [value / (1 + math.exp(-value)) for value in gate_row]
        np.testing.assert_allclose(found[row], silu * x_row + x_row, rtol=1e-12)


def test_only_the_rows_asked_for_are_given() -> None:
    program = fuse(build_program(TINY, ("logits", "hidden")))
    executor = ReferenceExecutor(program, random_weights(program), np.float64)
    ids = random_ids(9)
    whole = executor.forward(executor.new_state(), ids)
    for num_outputs in (0, 1, 4):
        some = executor.forward(executor.new_state(), ids, num_outputs)
        assert some["logits"].shape == (num_outputs, TINY.vocab_size)
        assert some["hidden"].shape == (num_outputs, TINY.dim)
        np.testing.assert_allclose(some["logits"], whole["logits"][9 - num_outputs :], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("keep_weights", [True, False])
def test_weights_are_asked_for_once_or_each_time(keep_weights: bool) -> None:
    program = build_program(replace(TINY, tied_head=True))
    weights, asked = random_weights(program), []
    executor = ReferenceExecutor(
        program, lambda name: [asked.append(name), weights(name)][1], np.float32, keep_weights=keep_weights
    )
    state = executor.new_state()
    for _ in range(2):
        assert executor.forward(state, [1, 2, 3])["logits"].dtype == np.float32
    assert asked.count("token_embd.weight") == (1 if keep_weights else 4)  # the table and the head


def test_float32_is_close_to_float64() -> None:
    program = build_program(TINY)
    ids = random_ids(30)
    single = ReferenceExecutor(program, random_weights(program), np.float32)
    logits = single.forward(single.new_state(), ids)["logits"]
    np.testing.assert_allclose(logits, run(program, ids, [30]), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("ids", "num_outputs"), [([], 0), ([1, 2], 3), ([1, 2], -1)])
def test_outputs_without_tokens_are_refused(ids: list[int], num_outputs: int) -> None:
    program = build_program(TINY)
    executor = ReferenceExecutor(program, random_weights(program))
    with pytest.raises(ValueError, match="outputs of"):
        executor.forward(executor.new_state(), ids, num_outputs)


@pytest.mark.parametrize("token", [-1, TINY.vocab_size])
def test_a_token_outside_the_vocabulary_is_refused(token: int) -> None:
    program = build_program(TINY)
    executor = ReferenceExecutor(program, random_weights(program), np.float64)
    with pytest.raises(IndexError):
        executor.forward(executor.new_state(), [3, token])


def test_a_step_that_fails_leaves_the_request_as_it_was() -> None:
    """The last weight cannot be had once, when all caches have been written."""
    program = build_program(TINY)
    weights = random_weights(program)
    failing = ["output.weight"]

    def sometimes(name: str) -> np.ndarray:
        if name in failing:
            failing.remove(name)
            raise MemoryError(name)
        return weights(name)

    executor = ReferenceExecutor(program, sometimes, np.float64)
    state = executor.new_state()
    with pytest.raises(MemoryError):
        executor.forward(state, [1, 2])
    assert (state.num_tokens, state.caches) == (0, {})
    np.testing.assert_array_equal(executor.forward(state, [1, 2])["logits"], run(program, np.array([1, 2]), [2]))


def test_a_weight_of_another_shape_is_refused() -> None:
    program = build_program(TINY)
    executor = ReferenceExecutor(program, lambda name: np.ones((2, 2)))
    with pytest.raises(ValueError, match="token_embd"):
        executor.forward(executor.new_state(), [0])
