"""Keys and values in 8 bits: what is stored, to the bit; the same on every instruction set; how little it changes."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.native.in_memory import MemorySource, chunk, forward, native, reference, run
from tests.native.test_attention import ISAS, VOCAB, attention_program, source_for, token_ids

from twostroke.llm.llm import LLM
from twostroke.program.program import Program

GROUP = 32
GOLDEN = Path(__file__).parents[1] / "golden" / "smollm2-135m-instruct-q4_1.json"


def stored(x: np.ndarray) -> np.ndarray:
    """(..., dim) as Q8_0 gives it back: bytes of 32 elements times one float16, the largest element being 127."""
    found = np.empty(x.shape, np.float32)
    for begin in range(0, x.shape[-1], GROUP):
        part = x[..., begin : begin + GROUP].astype(np.float32)
        scale = np.float32(np.abs(part).max(axis=-1, keepdims=True) / np.float32(127)).astype(np.float16)
        scale = scale.astype(np.float32)
        with np.errstate(divide="ignore"):
            inverse = np.where(scale > 0, np.float32(1) / scale, np.float32(0))
        found[..., begin : begin + GROUP] = np.clip(np.rint(part * inverse), -127, 127) * scale
    return found


def random_source(program: Program, head_dim: int) -> tuple[MemorySource, MemorySource]:
    """Normal values; and the same with every head's keys and values as they are stored."""
    rng = np.random.default_rng(5)
    exact = {name: rng.standard_normal(w.shape).astype(np.float32) for name, w in program.weights.items()}
    rounded = dict(exact)
    for name in ("k.weight", "v.weight"):
        rounded[name] = stored(exact[name].reshape(VOCAB, -1, head_dim)).reshape(VOCAB, -1)
    return MemorySource(exact), MemorySource(rounded)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("head_dim", [16, 20, 32, 64, 80, 100])
def test_a_value_comes_back_as_it_is_stored(head_dim: int, isa: str) -> None:
    """With one key its weight is 1. Whole groups and broken ones, vectors filled up or not."""
    program = attention_program(1, 1, head_dim)
    values = np.random.default_rng(head_dim).standard_normal((VOCAB, head_dim)).astype(np.float32)
    values[1], values[2, 3:] = 0.0, 1e-9  # nothing; and what vanishes beside the rest of its group
    source = MemorySource({**source_for(program).tensors, "v.weight": values})
    for token in range(4):
        _, got = run(native(program, source, isa, kv_type="q8_0"), chunk([token]))
        np.testing.assert_array_equal(got[0], stored(values[token]))


@pytest.mark.parametrize(("heads", "head_dim", "window"), [(3, 64, None), (4, 80, 100), (12, 20, None), (1, 128, 300)])
def test_attention_is_that_of_the_stored_keys_and_values(heads: int, head_dim: int, window: int | None) -> None:
    program = attention_program(heads, 1, head_dim, window)
    source, rounded = random_source(program, head_dim)
    ids = token_ids(500)
    expected = forward(reference(program, rounded), ids)
    _, scalar = run(native(program, source, "scalar", kv_type="q8_0"), chunk(ids))
    np.testing.assert_allclose(scalar, expected, rtol=0, atol=5e-5)
    for isa in ISAS:
        executor = native(program, source, isa, kv_type="q8_0")
        np.testing.assert_array_equal(run(executor, chunk(ids))[1], scalar, err_msg=isa)
        _, last = run(executor, chunk(ids[-1:], start=499))  # as a decode step does
        np.testing.assert_array_equal(last[0], scalar[-1], err_msg=isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_is_not_lost(bad: float, isa: str) -> None:
    program = attention_program(1, 1, 32)
    values = np.ones((VOCAB, 32), np.float32)
    values[0, 7] = bad
    source = MemorySource({**source_for(program).tensors, "v.weight": values})
    _, got = run(native(program, source, isa, kv_type="q8_0"), chunk([0]))
    assert not np.isfinite(got).all()


def test_perplexity_barely_changes(smollm2_path: str) -> None:
    """Within 0.5% of 16-bit keys and values, in both phases, on the passage of the golden file."""
    text = json.loads(GOLDEN.read_text(encoding="utf-8"))["passage"]["text"]
    nll: dict[str, dict[str, float]] = {}
    for kv in ("bf16", "q8_0"):
        with LLM(smollm2_path, kv=kv, context=512, max_batch=1) as llm:
            nll[kv] = {phase: llm.score(text, phase).mean_nll for phase in ("prefill", "decode")}
            tokens = len(llm.tokenizer.encode(text))
            assert llm.memory.kv_bytes_per_token == {"bf16": 23040, "q8_0": 12240}[kv]
    assert tokens > 400
    for phase, exact in nll["bf16"].items():
        assert nll["q8_0"][phase] != exact
        assert abs(nll["q8_0"][phase] - exact) < 0.005
