"""Configurations from config.json: what absence means, every kind of window, bias and head; bad keys by their names."""

import json
from pathlib import Path
from typing import Any

import pytest

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.config import ModelConfig
from twostroke.models.hf_config import ARCHITECTURES, config_from_hf
from twostroke.models.registry import build_program
from twostroke.models.rope_scaling import RopeScaling
from twostroke.program.builder import Layer
from twostroke.program.values import RopeSpec

FOLDER = Path(__file__).parents[1] / "golden" / "families"
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 320,
    "max_position_embeddings": 128,
}


def read(model_type: str = "llama", **changes: Any) -> ModelConfig:
    """The configuration with keys changed; ... takes one away."""
    config = {**CONFIG, "model_type": model_type, **changes}
    return config_from_hf({key: value for key, value in config.items() if value is not ...})


def test_defaults() -> None:
    assert read() == ModelConfig(
        architecture="llama",
        name="llama",
        num_layers=4,
        dim=64,
        num_heads=8,
        num_kv_heads=8,
        head_dim=8,
        ffn_dim=96,
        vocab_size=320,
        context_length=128,
        norm_eps=1e-6,
        rope_dim=8,
    )


@pytest.mark.parametrize("folder", sorted(path.name for path in FOLDER.iterdir()))
def test_a_program_needs_no_weights(folder: str) -> None:
    config = config_from_hf(json.loads((FOLDER / folder / "config.json").read_text()))
    program = build_program(config)
    assert program.values[program.outputs["logits"]].dim == config.vocab_size
    states = sum(cache.kind == "state" for cache in program.caches)
    assert states == 4 * len(config.recurrent_layers)  # three convolutions and the matrices of heads
    assert len(program.caches) - states == config.num_layers - len(config.recurrent_layers)


@pytest.mark.parametrize(
    ("model_type", "changes", "windows"),
    [
        ("llama", {"sliding_window": 16}, ()),
        ("mistral", {}, (4096,) * 4),
        ("mistral", {"sliding_window": None}, ()),
        ("mistral", {"sliding_window": 16}, (16,) * 4),
        ("phi3", {"sliding_window": 16}, (16,) * 4),
        ("qwen2", {"sliding_window": 16}, ()),
        ("qwen2", {"sliding_window": 16, "use_sliding_window": True}, ()),
        ("qwen3", {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 3}, (None, None, None, 16)),
        ("qwen3", {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 0}, (16,) * 4),
        ("gemma2", {}, (4096, None) * 2),
        ("gemma3_text", {"sliding_window": 16}, (16,) * 4),
        ("gemma3_text", {"sliding_window": 16, "sliding_window_pattern": 3}, (16, 16, None, 16)),
        ("smollm3", {"sliding_window": 16, "use_sliding_window": False, "layer_types": ["sliding_attention"] * 4}, ()),
        (
            "gemma2",
            {"sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"] * 2},
            (None, 16) * 2,
        ),
    ],
)
def test_windows(model_type: str, changes: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    found = read(model_type, **changes).windows
    assert found == windows or (not any(found) and not any(windows))


@pytest.mark.parametrize(
    ("model_type", "changes", "biases"),
    [
        ("llama", {}, (False, False, False)),
        ("llama", {"attention_bias": True}, (True, True, False)),
        ("llama", {"mlp_bias": True}, (False, False, True)),
        ("qwen2", {}, (True, False, False)),
        ("qwen3", {"attention_bias": True}, (True, True, False)),
        ("stablelm", {"use_qkv_bias": True}, (True, False, False)),
        ("gpt_neox", {}, (True, True, True)),
        ("gpt_neox", {"attention_bias": False}, (False, False, True)),
    ],
)
def test_biases(model_type: str, changes: dict[str, Any], biases: tuple[bool, bool, bool]) -> None:
    config = read(model_type, **changes)
    assert (config.qkv_bias, config.attn_output_bias, config.ffn_bias) == biases


@pytest.mark.parametrize(
    ("model_type", "changes", "tied"),
    [
        ("llama", {}, False),
        ("llama", {"tie_word_embeddings": True}, True),
        ("gemma2", {}, True),
        ("gemma2", {"tie_word_embeddings": False}, False),
        ("smollm3", {}, True),
    ],
)
def test_tied_heads(model_type: str, changes: dict[str, Any], tied: bool) -> None:
    assert read(model_type, **changes).tied_head is tied


def test_partial_rotation_and_bases() -> None:
    assert read("gpt_neox", rotary_emb_base=500.0).rope(Layer(0)) == RopeSpec(2, 500.0, "half")
    assert read("stablelm", partial_rotary_factor=0.5).rope(Layer(0)) == RopeSpec(4, 10000.0, "half")
    gemma = read("gemma3_text", head_dim=16, sliding_window_pattern=2)
    assert [gemma.rope(Layer(layer)) for layer in range(2)] == [
        RopeSpec(16, 10000.0, "half"),
        RopeSpec(16, 1e6, "half"),
    ]
    smol = read("smollm3")
    assert [smol.rope(Layer(layer)) is None for layer in range(4)] == [False, False, False, True]
    listed = read("smollm3", no_rope_layers=[0, 1, 1, 0, 1])
    assert [listed.rope(Layer(layer)) is None for layer in range(4)] == [True, False, False, True]


def test_scalings_that_follow_from_the_model() -> None:
    """A yarn without its factor, and dynamic scaling, whose context grows."""
    yarn = {"rope_type": "yarn", "original_max_position_embeddings": 32}
    assert read(rope_scaling=yarn).rope_scaling == RopeScaling("yarn", 4.0, 32)
    dynamic = read(rope_scaling={"type": "dynamic", "factor": 2.0})
    assert (dynamic.rope_scaling, dynamic.context_length) == (RopeScaling("dynamic", 2.0, 128), 256)
    assert dynamic.rope(Layer(0)) != read(rope_scaling=None).rope(Layer(0))
    assert read(rope_scaling={"type": "default"}).rope_scaling is None


BAD: list[tuple[str, dict[str, Any], str]] = [
    *(("llama", {key: ...}, key) for key in CONFIG if key != "model_type"),
    *(("llama", {"hidden_size": value}, "hidden_size") for value in (0, -1, 1 << 40, 10**400, 1.0, True, "64", [64])),
    *(("llama", {"rms_norm_eps": value}, "rms_norm_eps") for value in (0, -1e-5, float("nan"), 1e-300, "1")),
    *(("llama", {"rope_theta": value}, "rope_theta") for value in (0, 1.0, 1e13, float("inf"), 10**400, True)),
    ("llama", {"num_attention_heads": 7}, "num_attention_heads"),
    ("llama", {"num_key_value_heads": 3}, "num_key_value_heads"),
    ("llama", {"num_key_value_heads": 16}, "num_key_value_heads"),
    ("llama", {"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ("llama", {"head_dim": 7}, "partial_rotary_factor"),
    ("llama", {"rope_scaling": "linear"}, "rope_scaling"),
    ("llama", {"rope_scaling": {"type": "linear"}}, "factor"),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 0}}, "factor"),
    ("llama", {"rope_scaling": {"type": 3}}, "type"),
    ("llama", {"rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 1}}, "original"),
    (
        "llama",
        {"rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0}},
        "high_freq_factor",
    ),
    ("phi3", {"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 3, "long_factor": [1.0] * 4}}, "short"),
    ("phi3", {"rope_scaling": {"type": "su", "short_factor": [1.0] * 4, "long_factor": [0.0] * 4}}, "long"),
    ("stablelm", {"partial_rotary_factor": 0.1}, "partial_rotary_factor"),
    ("gemma2", {"layer_types": ["full_attention"]}, "layer_types"),
    ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers"),
    ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 5}, "num_experts_per_tok"),
    ("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2}, "moe_intermediate_size"),
]


@pytest.mark.parametrize(("model_type", "changes", "key"), BAD, ids=lambda value: str(value)[:40])
def test_bad_keys_are_named(model_type: str, changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ModelFileError, match=key) as raised:
        read(model_type, **changes)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("model_type", "changes", "key"),
    [
        ("llama", {"rope_scaling": {"type": "mrope", "factor": 2.0}}, "rope_type"),
        ("llama", {"hidden_act": "tanh"}, "hidden_act"),
        ("gemma2", {"layer_types": ["chunked_attention"] * 4}, "layer_types"),
        ("gemma2", {"layer_types": [["full_attention"]] * 4}, "layer_types"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv"),
        ("stablelm", {"qk_layernorm": True}, "qk_layernorm"),
        ("qwen2_moe", {"mlp_only_layers": [0]}, "mlp_only_layers"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ("gpt_oss", {"swiglu_limit": 5.0}, "swiglu_limit"),
        ("mamba", {}, "model_type 'mamba'"),
    ],
)
def test_what_is_not_supported_is_named(model_type: str, changes: dict[str, Any], key: str) -> None:
    with pytest.raises(UnsupportedModelError, match=key):
        read(model_type, **changes)


@pytest.mark.parametrize("model_type", [None, 3, ""])
def test_the_model_type_is_a_name(model_type: Any) -> None:
    with pytest.raises(ModelFileError, match="model_type"):
        config_from_hf({**CONFIG, "model_type": model_type})


def test_every_model_type_is_listed_where_one_is_unknown() -> None:
    with pytest.raises(UnsupportedModelError, match=", ".join(sorted(ARCHITECTURES))):
        read("mamba")
