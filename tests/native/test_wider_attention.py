"""Attention with soft caps, sinks, windows and scaled rotation, in all combinations, over several ranges of keys."""

import numpy as np
import pytest
from tests.native.in_memory import MemorySource, chunk, forward, native, reference, run

from twostroke.native.executor import available_isas
from twostroke.program.builder import Builder
from twostroke.program.program import Program
from twostroke.program.values import CacheSpec, RopeSpec

ISAS = available_isas()
VOCAB = 50
LENGTH = 600  # keys of three ranges of 256
HEADS, KV_HEADS, HEAD_DIM = 6, 2, 20
ROPE = RopeSpec(12, 10000.0, "half", magnitude=1.25)
SINKS = np.array([-2.0, 0.0, 3.0, 40.0, -1e30, 6.0])
FORMS = [
    (cap, sinks, window, rope)
    for cap in (None, 2.0)
    for sinks in (False, True)
    for window in (None, 40, 300)
    for rope in (None, ROPE)
]


def attention_program(
    cap: float | None, sinks: bool, window: int | None, rope: RopeSpec | None, scale: float | None = None
) -> Program:
    b = Builder()
    dims = (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
    q, k, v = (b.embed(name, VOCAB, count * HEAD_DIM) for name, count in dims)
    if rope is not None:
        q, k = b.rope(q, HEAD_DIM, rope), b.rope(k, HEAD_DIM, rope)
    cache = CacheSpec("cache", KV_HEADS, HEAD_DIM, window)
    out = b.attention(q, k, v, cache, scale=scale, soft_cap=cap, sinks="sinks" if sinks else None)
    b.output("logits", b.output_rows(out))
    return b.build()


def source_of(program: Program, sinks: np.ndarray = SINKS) -> MemorySource:
    """Queries, keys and values by token id; scores spread over several units."""
    rng = np.random.default_rng(3)
    tensors = {
        name: rng.integers(-48, 49, (VOCAB, n * HEAD_DIM)) / 16 for name, n in zip("qkv", (6, 2, 2), strict=True)
    }
    return MemorySource({**{f"{name}.weight": array for name, array in tensors.items()}, "sinks.weight": sinks})


IDS = np.random.default_rng(7).integers(0, VOCAB, LENGTH)


@pytest.mark.parametrize(("cap", "sinks", "window", "rope"), FORMS)
def test_forms(cap: float | None, sinks: bool, window: int | None, rope: RopeSpec | None) -> None:
    """A prompt in chunks, then rows one by one, whose ranges of keys are split over threads."""
    program = attention_program(cap, sinks, window, rope)
    source = source_of(program)
    expected = forward(reference(program, source), IDS)
    parts = [(0, 290), (290, 597), *((row, row + 1) for row in range(597, LENGTH))]
    found = []
    for isa, threads, fused in (*((isa, 1, True) for isa in ISAS), (ISAS[-1], 3, False)):
        executor = native(program, source, isa, kv_type="f32", num_threads=threads, fused=fused)
        found.append(np.concatenate([run(executor, chunk(IDS[a:b], start=a))[1] for a, b in parts]))
        np.testing.assert_array_equal(found[-1], found[0])
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("length", [1, 2, 256, 257])
def test_a_sink_takes_its_share(length: int, isa: str) -> None:
    """Of equal scores 0 each key has 1 / (n + e^sink)."""
    program = attention_program(None, True, None, None)
    source = source_of(program)
    source = MemorySource({**source.tensors, "q.weight": np.zeros((VOCAB, HEADS * HEAD_DIM))})
    _, got = run(native(program, source, isa, kv_type="f32"), chunk(IDS[:length]))
    sums = source.values("v.weight")[IDS[:length]].astype(np.float64).sum(axis=0).reshape(KV_HEADS, 1, HEAD_DIM)
    share = 1 / (length + np.exp(np.minimum(SINKS, 700))).reshape(KV_HEADS, 3, 1)
    np.testing.assert_allclose(got[-1].reshape(KV_HEADS, 3, HEAD_DIM), sums * share, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("cap", [None, 2.0])
def test_sinks_at_their_ends(cap: float | None, isa: str) -> None:
    """One that is never reached changes no bit; one above everything leaves nothing; NaN is not lost."""
    with_sinks, without = attention_program(cap, True, None, None), attention_program(cap, False, None, None)
    plain = run(native(without, source_of(without), isa), chunk(IDS[:300]))[1]
    never = source_of(with_sinks, np.array([-1e30, -np.inf] * 3))
    np.testing.assert_array_equal(run(native(with_sinks, never, isa), chunk(IDS[:300]))[1], plain)
    always = source_of(with_sinks, np.array([1e30, 1e4] * 3))
    assert not run(native(with_sinks, always, isa), chunk(IDS[:300]))[1].any()
    sinks = np.zeros(HEADS)
    sinks[2] = np.nan
    nan = run(native(with_sinks, source_of(with_sinks, sinks), isa), chunk(IDS[:300]))[1].reshape(300, HEADS, -1)
    assert np.isnan(nan[:, 2]).all() and np.isfinite(np.delete(nan, 2, axis=1)).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_caps_bound_scores_of_any_size(scale: float, isa: str) -> None:
    """Far below the cap scores stay nearly as they are, far above it they are plus or minus the cap."""
    program = attention_program(5.0, False, None, None, scale)
    source = source_of(program)
    expected = forward(reference(program, source), IDS[:300])
    got = run(native(program, source, isa, kv_type="f32"), chunk(IDS[:300]))[1]
    np.testing.assert_allclose(got, expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("what", ["q", "k", "v"])
def test_nan_is_not_lost(what: str, isa: str) -> None:
    """Past a cap and beside a sink, from the row with it on, and as query and key until it leaves the window.

    As a value it may stay longer: its weight is 0 then, and 0 times NaN is NaN.
    """
    program = attention_program(2.0, True, 5, ROPE)
    source = source_of(program)
    bad = source.values(f"{what}.weight").copy()
    bad[49] = np.nan
    source = MemorySource({**source.tensors, f"{what}.weight": bad})
    ids = np.array([*range(10), 49, *range(10)])
    _, got = run(native(program, source, isa, kv_type="f32"), chunk(ids))
    rows = [10] if what == "q" else list(range(10, 15))
    assert np.isnan(got[rows]).all()
    assert np.isfinite(got[:10]).all()
    assert what == "v" or np.isfinite(got[15:]).all()


def test_what_must_change_bits_does() -> None:
    """Controls: each attribute counts."""
    forms = [(None, False, None, None), (2.0, False, None, None), (None, True, None, None), (None, False, 40, None)]
    forms += [(None, False, None, ROPE), (None, False, None, RopeSpec(12, 10000.0, "half"))]
    programs = [attention_program(*form) for form in forms]
    found = [run(native(program, source_of(program)), chunk(IDS[:100]))[1][-1] for program in programs]
    for index, one in enumerate(found):
        assert all(np.abs(one - other).max() > 1e-3 for other in found[:index])
