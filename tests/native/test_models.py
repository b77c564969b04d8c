"""Whole tiny models on the native executor: against the reference, fused or not, on every instruction set."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.native.in_memory import chunk, native, run
from tests.tiny import write_tiny_gguf

from twostroke.models.load import Model, dequantized, load_model
from twostroke.native.executor import available_isas
from twostroke.program.reference import ReferenceExecutor

ISAS = available_isas()
K_QUANTS = {"dim": 256, "num_heads": 4, "head_dim": 64, "ffn_dim": 256}
MODELS: dict[str, dict[str, Any]] = {
    "llama in F32": {"arch": "llama"},
    "llama in Q4_1 and Q8_0": {"arch": "llama", "types": {"default": "Q4_1", "token_embd": "Q8_0"}, "tied": False},
    "llama in K-quants": {"arch": "llama", "types": {"default": "Q4_K", "ffn_down": "Q6_K"}, **K_QUANTS},
    "llama with scaled frequencies and odd heads": {"arch": "llama", "rope_factors": True, "head_dim": 24, "dim": 96},
    "qwen2 in Q8_0": {"arch": "qwen2", "types": "Q8_0", "num_heads": 7, "num_kv_heads": 1, "head_dim": 32},
    "qwen2 in all types": {
        "arch": "qwen2",
        "types": {"default": "Q4_K", "attn_q": "Q4_1", "attn_k": "F32", "attn_v": "Q6_K", "ffn_up": "Q8_0"},
        **K_QUANTS,
    },
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    fields = dict(MODELS[request.param])
    return load_model(write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf", **fields))


def logits(model: Model, isa: str, *, fused: bool = True, **settings: Any) -> np.ndarray:
    """Of 70 rows in two chunks, then 20 one by one."""
    ids = np.random.default_rng(5).integers(0, model.config.vocab_size, 90)
    executor = native(model.program, model.source, isa, fused=fused, kv_type="f32", **settings)
    parts = [(0, 37), (37, 70), *((row, row + 1) for row in range(70, 90))]
    return np.concatenate([run(executor, chunk(ids[begin:end], start=begin))[1] for begin, end in parts])


@pytest.mark.parametrize("isa", ISAS)
def test_logits_are_those_of_the_reference(model: Model, isa: str) -> None:
    """Within 1e-3 of their spread after two layers of 16-bit activations; most of them far nearer."""
    reference = ReferenceExecutor(model.program, dequantized(model.source), np.float64)
    ids = np.random.default_rng(5).integers(0, model.config.vocab_size, 90)
    expected = reference.forward(reference.new_state(), ids)["logits"]
    error = np.abs(logits(model, isa) - expected)
    assert error.max() < 1e-3 * expected.std()
    assert np.median(error) < 1e-4 * expected.std()


def test_fusion_threads_and_instruction_set_do_not_change_a_bit(model: Model) -> None:
    expected = logits(model, "scalar")
    assert np.isfinite(expected).all()
    for isa in ISAS:
        np.testing.assert_array_equal(logits(model, isa, fused=False), expected)
        np.testing.assert_array_equal(logits(model, isa, num_threads=2), expected)


def test_a_tiny_model_file_is_packed_without_growing(tmp_path: Path) -> None:
    """Rows that fill groups of 16: the bytes are the file's exactly."""
    made = load_model(write_tiny_gguf(tmp_path / "model.gguf", "llama", types="Q8_0"))
    file_bytes = sum(made.source.info(name).num_bytes for name in made.program.weights)
    assert native(made.program, made.source).weight_bytes == file_bytes
