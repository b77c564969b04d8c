"""Attention over paged keys and values: head counts and sizes, windows, KV types, positions, chunks, threads.

Queries, keys and values are looked up by token id, so that a test states them. They are small multiples of 1/16, which
every KV type holds exactly: whatever differs from float64 is the attention's own arithmetic.
"""

import numpy as np
import pytest
from tests.native.in_memory import MemorySource, chunk, forward, native, reference, run

from twostroke.native.executor import KV_BITS, available_isas
from twostroke.program.builder import Builder
from twostroke.program.program import Program
from twostroke.program.values import CacheSpec, RopeSpec

ISAS = available_isas()
VOCAB = 50
LENGTH = 700  # keys of three ranges of 256


def attention_program(
    heads: int, kv_heads: int, head_dim: int, window: int | None = None, rope: bool = False
) -> Program:
    b = Builder()
    q, k, v = (b.embed(name, VOCAB, n * head_dim) for name, n in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
    if rope:
        spec = RopeSpec(head_dim, 10000.0, "half")
        q, k = b.rope(q, head_dim, spec), b.rope(k, head_dim, spec)
    b.output("logits", b.output_rows(b.attention(q, k, v, CacheSpec("cache", kv_heads, head_dim, window))))
    return b.build()


def source_for(program: Program) -> MemorySource:
    """Scores spread over several units; 8 significant bits a value."""
    rng = np.random.default_rng(3)
    return MemorySource({name: rng.integers(-48, 49, w.shape) / 16 for name, w in program.weights.items()})


def token_ids(count: int = LENGTH) -> np.ndarray:
    return np.random.default_rng(7).integers(0, VOCAB, count)


def check(program: Program, length: int, **settings: object) -> None:
    """On every instruction set: near float64's, scalar code's to the bit, and a last row alone as in its chunk."""
    source, ids = source_for(program), token_ids(length)
    expected = forward(reference(program, source), ids)
    first, found = max(0, length - 500), []
    for isa in ISAS:
        executor = native(program, source, isa, **settings)
        if first:
            run(executor, chunk(ids[:first], num_outputs=0))
        found.append(run(executor, chunk(ids[first:], start=first))[1])
        np.testing.assert_array_equal(found[-1], found[0], err_msg=isa)
        _, last = run(executor, chunk(ids[-1:], start=length - 1))  # as a decode step does
        np.testing.assert_array_equal(last[0], found[0][-1], err_msg=isa)
    np.testing.assert_allclose(found[0], expected[first:], rtol=0, atol=2e-5)


@pytest.mark.parametrize("group", [1, 2, 3, 4, 7, 9, 12])
def test_query_heads_share_key_heads(group: int) -> None:
    check(attention_program(2 * group, 2, 16), 300)


@pytest.mark.parametrize("head_dim", [8, 16, 20, 32, 64, 80, 128])
def test_head_sizes(head_dim: int) -> None:
    """Multiples of 16 and others, whose values are padded."""
    check(attention_program(3, 1, head_dim), 270)


@pytest.mark.parametrize("window", [None, 1, 5, 16, 100, 256, 300])
def test_windows_over_several_key_ranges(window: int | None) -> None:
    check(attention_program(4, 2, 16, window), LENGTH)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 255, 256, 257, 512, 513])
def test_borders_of_blocks_and_ranges(length: int) -> None:
    check(attention_program(2, 1, 16), length)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "bf16"])
def test_kv_types_hold_what_they_can(kv_type: str) -> None:
    program = attention_program(4, 2, 32)
    check(program, 300, kv_type=kv_type)
    executor = native(program, source_for(program), kv_type=kv_type)
    assert executor.kv_pool_bytes == 1024 * 2 * 2 * 32 * KV_BITS[kv_type] / 8


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("kv_type", "bits"), [("f32", 23), ("f16", 10), ("bf16", 7)])
def test_keys_and_values_are_rounded_to_the_kv_type(kv_type: str, bits: int, isa: str) -> None:
    """With one key its weight is 1, so the value comes back as it was stored: to the nearest, ties to even."""
    program = attention_program(1, 1, 16)
    values = np.random.default_rng(0).standard_normal((VOCAB, 16)).astype(np.float32)
    values[0, :4] = 1 + np.array([0.5, 1.5, 2.5, 3.5]) * 2.0**-bits  # ties, where the type is short enough
    source = MemorySource({**source_for(program).tensors, "v.weight": values})
    _, got = run(native(program, source, isa, kv_type=kv_type), chunk([0]))
    scale = 2.0 ** (np.floor(np.log2(np.abs(values[0]))) - bits)
    np.testing.assert_array_equal(got[0], np.round(values[0] / scale) * scale)


@pytest.mark.parametrize("isa", ISAS)
def test_values_beyond_float16_saturate(isa: str) -> None:
    program = attention_program(1, 1, 16)
    values = np.full((VOCAB, 16), 1e6, np.float32)
    source = MemorySource({**source_for(program).tensors, "v.weight": values})
    assert set(run(native(program, source, isa, kv_type="f16"), chunk([0]))[1][0].tolist()) == {65504.0}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("what", ["q", "k", "v"])
def test_nan_is_not_lost(what: str, isa: str) -> None:
    """A NaN among what a row reads reaches its output; rows before it do not see it."""
    program = attention_program(2, 1, 16)
    source = source_for(program)
    bad = source.values(f"{what}.weight").copy()
    bad[9, 3] = np.nan
    ids = np.concatenate([np.arange(9), [9], np.arange(8)])
    executor = native(program, MemorySource({**source.tensors, f"{what}.weight": bad}), isa, kv_type="f32")
    run(executor, chunk(ids[:9]))
    _, got = run(executor, chunk(ids[9:], start=9))
    assert np.isnan(got[0]).any()
    if what != "q":
        assert np.isnan(got[1:]).any(axis=1).all()


@pytest.mark.parametrize("rope", [False, True])
@pytest.mark.parametrize("window", [None, 290])
@pytest.mark.parametrize("heads", [(2, 1), (9, 3), (12, 1)])
def test_bits_do_not_depend_on_chunks_blocks_threads_or_fusion(
    heads: tuple[int, int], window: int | None, rope: bool
) -> None:
    program = attention_program(*heads, 16, window, rope)
    source, ids = source_for(program), token_ids()
    isa = ISAS[-1]
    whole = native(program, source, isa, max_step_tokens=LENGTH)
    _, expected = run(whole, chunk(ids))
    for size, threads, fused in ((1, 1, True), (16, 2, False), (100, 4, True), (511, 3, True)):
        executor = native(program, source, isa, num_threads=threads, fused=fused, max_step_tokens=LENGTH)
        order = np.random.default_rng(size).permutation(executor.num_blocks[0]).astype(np.int32)
        for start in range(0, LENGTH, size):
            part = ids[start : start + size]
            _, got = run(executor, chunk(part, start=start, block_ids=(order,)))
            np.testing.assert_array_equal(got, expected[start : start + size])


def test_requests_of_one_step_do_not_see_each_other() -> None:
    program = attention_program(4, 2, 16)
    source = source_for(program)
    executor = native(program, source, ISAS[-1], num_threads=2)
    lengths, at, chunks, alone = (1, 40, 300, 17), 0, [], []
    for seed, length in enumerate(lengths):
        ids = np.random.default_rng(seed).integers(0, VOCAB, length)
        blocks = np.arange(at, at + -(-length // 16), dtype=np.int32)[::-1].copy()
        at += len(blocks)
        chunks.append(chunk(ids, block_ids=(blocks,)))
        alone.append(run(native(program, source, ISAS[-1]), chunk(ids))[1])
    np.testing.assert_array_equal(run(executor, *chunks)[1], np.concatenate(alone))


def test_what_must_change_bits_does() -> None:
    """Controls: another KV type (of values it cannot hold), a window, a key."""
    program = attention_program(2, 1, 16, rope=True)
    source, ids = source_for(program), token_ids(100)
    _, expected = run(native(program, source, kv_type="f32"), chunk(ids))
    for other, settings in (
        (program, {"kv_type": "f16"}),
        (program, {"kv_type": "bf16"}),
        (attention_program(2, 1, 16, 99, rope=True), {"kv_type": "f32"}),
    ):
        got = run(native(other, source, **settings), chunk(ids))[1]
        assert not np.array_equal(got[-1], expected[-1])
    changed = ids.copy()
    changed[0] = (changed[0] + 1) % VOCAB
    got = run(native(program, source, kv_type="f32"), chunk(changed))[1]
    assert (got[1:] != expected[1:]).any(axis=1).all()
