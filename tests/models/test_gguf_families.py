"""What GGUF metadata say and leave unsaid of each architecture: windows, scalings, experts, constants."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny_families import write_tiny_family

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.config import ModelConfig
from twostroke.models.gguf_config import config_from_gguf
from twostroke.models.load import dequantized, load_model
from twostroke.models.rope_scaling import RopeScaling
from twostroke.program.builder import Layer
from twostroke.program.reference import ReferenceExecutor
from twostroke.program.values import RopeSpec, Weight
from twostroke.weights.gguf_writer import write_gguf
from twostroke.weights.tensor_types import TensorType

KEYS: dict[str, Any] = {
    "block_count": 4,
    "context_length": 128,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 8,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.layer_norm_epsilon": 1e-4,
}
TABLE = {"token_embd.weight": (320, 64)}
LONG = {"rope_factors_long.weight": (4,), "rope_factors_short.weight": (4,)}


def read(arch: str, keys: dict[str, Any], shapes: dict[str, tuple[int, ...]] | None = None) -> ModelConfig:
    metadata = {f"{arch}.{key}": value for key, value in (KEYS | keys).items()}
    return config_from_gguf({"general.architecture": arch, **metadata}, TABLE | (shapes or {}))


WINDOW, PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"


@pytest.mark.parametrize(
    ("arch", "keys", "windows"),
    [
        ("llama", {}, ()),
        ("llama", {WINDOW: 0}, ()),
        ("llama", {WINDOW: 16}, (16,) * 4),
        ("phi3", {WINDOW: 16}, (16,) * 4),
        ("gemma2", {}, (4096, None) * 2),
        ("gemma2", {WINDOW: 16}, (16, None) * 2),
        ("gemma3", {WINDOW: 16}, (16,) * 4),
        ("gemma3", {WINDOW: 16, PATTERN: 2}, (16, None) * 2),
        ("olmo2", {WINDOW: 16, PATTERN: np.array([True, False, True, True])}, (16, None, 16, 16)),
    ],
)
def test_windows(arch: str, keys: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert read(arch, keys).windows == windows


def test_which_rows_are_paired() -> None:
    found = {arch: read(arch, {}).rope_pairing for arch in ("llama", "granite", "smollm3", "qwen2", "phi3", "olmo2")}
    assert {arch for arch, pairing in found.items() if pairing == "interleaved"} == {"llama", "granite", "smollm3"}


@pytest.mark.parametrize(
    ("keys", "scaling"),
    [
        ({"factor": 4.0, "type": "yarn"}, RopeScaling("yarn", 4.0, 128)),
        (
            {"factor": 4.0, "type": "yarn", "original_context_length": 32, "yarn_beta_fast": 8.0},
            RopeScaling("yarn", 4.0, 32, beta_fast=8.0),
        ),
        ({"type": "longrope", "original_context_length": 32}, RopeScaling("longrope", 4.0, 32)),
        ({"type": "longrope", "factor": 2.0, "attn_factor": 1.5}, RopeScaling("longrope", 2.0, 128, 1.5)),
    ],
)
def test_scalings(keys: dict[str, Any], scaling: RopeScaling) -> None:
    assert read("llama", {f"rope.scaling.{key}": value for key, value in keys.items()}).rope_scaling == scaling


def test_a_yarn_may_multiply_its_magnitude() -> None:
    keys = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    plain, times = read("llama", keys), read("llama", {**keys, "rope.scaling.attn_factor": 0.5})
    assert plain.rope_scaling is not None
    assert times.rope_scaling is not None
    assert times.rope_scaling.final_magnitude() == 0.5 * plain.rope_scaling.final_magnitude()


@pytest.mark.parametrize(("context", "length"), [(32, "short"), (33, "long"), (None, "long")])
def test_long_factors_are_tensors_and_the_context_chooses(context: int | None, length: str) -> None:
    """Their file does not state the type."""
    config = read("phi3", {"rope.scaling.original_context_length": 32, "rope.scaling.attn_factor": 1.25}, LONG)
    rope = replace(config, rope_context=context).rope(Layer(0))
    factors = Weight(f"rope_factors_{length}.weight", (4,))
    assert rope == RopeSpec(8, 10000.0, "half", factors=factors, magnitude=1.25)


def test_experts() -> None:
    keys = {"expert_count": 8, "expert_used_count": 2}
    shapes = {"blk.0.ffn_gate_exps.weight": (8, 48, 64), "blk.0.ffn_gate_shexp.weight": (40, 64)}
    config = read("qwen2moe", keys, shapes)
    assert (config.num_experts, config.experts_per_token) == (8, 2)
    assert (config.expert_ffn_dim, config.shared_ffn_dim, config.renormalize_experts) == (48, 40, False)
    assert read("qwen3moe", {**keys, "expert_feed_forward_length": 32}).expert_ffn_dim == 32
    assert read("qwen3moe", keys).renormalize_experts
    assert not read("qwen3moe", {**keys, "expert_weights_norm": False}).renormalize_experts
    assert read("llama", {"expert_count": 0}).num_experts == 0


def test_constants() -> None:
    gemma = read("gemma2", {})
    assert (gemma.attention_soft_cap, gemma.logit_soft_cap, gemma.embedding_scale) == (50.0, 30.0, 8.0)
    assert (gemma.activation, gemma.norm_offset, gemma.attention_scale) == ("gelu_tanh", 0.0, None)
    assert read("gemma2", {"block_count": 46}).attention_scale == 8**-0.5
    assert read("gemma2", {"final_logit_softcapping": 20.0}).logit_soft_cap == 20.0
    scales = {"logit_scale": 8.0, "embedding_scale": 12.0, "residual_scale": 0.25, "attention.scale": 0.1}
    granite = read("granite", scales)
    assert (granite.logit_scale, granite.embedding_scale) == (0.125, 12.0)
    assert (granite.residual_scale, granite.attention_scale) == (0.25, 0.1)
    neox = read("gptneox", {})
    assert (neox.norm_eps, neox.parallel_residual, neox.activation) == (1e-4, True, "gelu")
    assert not read("gptneox", {"use_parallel_residual": False}).parallel_residual
    assert not read("stablelm", {}).parallel_residual


@pytest.mark.parametrize(
    ("arch", "keys"),
    [
        ("llama", {WINDOW: -1}),
        ("llama", {WINDOW: True}),
        ("llama", {WINDOW: np.array([16, 0])}),
        ("olmo2", {WINDOW: 16, PATTERN: np.array([True])}),
        ("llama", {"expert_count": 8}),
        ("llama", {"expert_count": 8, "expert_used_count": 9}),
        ("qwen3moe", {}),
        ("gpt-oss", {"expert_count": 0}),
        ("gptneox", {"use_parallel_residual": 1}),
        ("llama", {"rope.scaling.type": 3}),
        ("llama", {"rope.scaling.type": "yarn"}),
        ("llama", {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 1}),
        ("llama", {"rope.freq_base": 0.5}),
        ("granite", {"logit_scale": np.array([1.0, 2.0])}),
        ("granite", {"attention.scale": float("nan")}),
        ("gemma2", {"attn_logit_softcapping": np.array([0.0, 1.0])}),
    ],
    ids=str,
)
def test_bad_keys_are_named(arch: str, keys: dict[str, Any]) -> None:
    with pytest.raises((ModelFileError, UnsupportedModelError), match=f"metadata '{arch}\\."):
        read(arch, keys)


@pytest.mark.parametrize("value", [np.array([1, 0]), "no", 2])
def test_attention_that_is_not_causal_is_refused(value: Any) -> None:
    with pytest.raises(UnsupportedModelError, match=r"attention\.causal"):
        read("llama", {"attention.causal": value})


def test_architectures_that_are_another_for_text() -> None:
    """Keys are under their own names. Experts of granitemoe are routed as Mixtral's and scaled as Granite's."""
    for name, family in (("qwen2vl", "qwen2"), ("qwen3vl", "qwen3"), ("qwen3vlmoe", "qwen3moe")):
        experts = {"expert_count": 4, "expert_used_count": 2} if name.endswith("moe") else {}
        config = read(name, {**experts, "rope.dimension_sections": np.array([2, 3, 3, 0]), "rope.freq_base": 1e6})
        assert (config.architecture, config.rope_base, config.rope_pairing) == (family, 1e6, "half")
    keys = {"expert_count": 4, "expert_used_count": 2, "residual_scale": 0.5, "logit_scale": 4.0}
    config = read("granitemoe", keys)
    assert (config.architecture, config.num_experts, config.rope_pairing) == ("granite", 4, "interleaved")
    assert (config.residual_scale, config.logit_scale, config.renormalize_experts) == (0.5, 0.25, True)


def test_a_granite_of_experts_is_that_of_one_expert_where_all_are_alike(tmp_path: Path) -> None:
    """With the same matrices in every expert, shares that sum to 1 leave one feed-forward layer."""
    dense = load_model(write_tiny_family(tmp_path / "dense.gguf", "granite", types="F32"))
    weights = dequantized(dense.source)
    tensors = {name: weights(name) for name in dense.program.weights}
    dim, rng = dense.config.dim, np.random.default_rng(0)
    for layer in range(dense.config.num_layers):
        for part in ("gate", "up", "down"):
            matrix = tensors.pop(f"blk.{layer}.ffn_{part}.weight")
            tensors[f"blk.{layer}.ffn_{part}_exps.weight"] = np.stack([matrix] * 4)
        tensors[f"blk.{layer}.ffn_gate_inp.weight"] = rng.standard_normal((4, dim)).astype(np.float32)
    experts = {"granitemoe.expert_count": 4, "granitemoe.expert_used_count": 2}
    keys = {key.replace("granite.", "granitemoe."): value for key, value in dense.metadata.items()}
    table = {name: (TensorType.F32, values.shape) for name, values in tensors.items()}
    named = {**keys, **experts, "general.architecture": "granitemoe"}
    write_gguf(tmp_path / "moe.gguf", named, table, lambda name: tensors[name].reshape(-1).view(np.uint8))
    mixed = load_model(tmp_path / "moe.gguf")
    ids = np.arange(30, 50)
    found, expected = (
        ReferenceExecutor(model.program, dequantized(model.source), np.float64) for model in (mixed, dense)
    )
    logits = [each.forward(each.new_state(), ids)["logits"] for each in (found, expected)]
    np.testing.assert_allclose(logits[0], logits[1], rtol=0, atol=1e-9 + 1e-6 * np.abs(logits[1]).max())
    for model in (mixed, dense):
        model.source.close()
