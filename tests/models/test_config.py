"""Configurations from GGUF metadata: defaults as the format gives them, and each bad key refused by its name."""

from typing import Any

import numpy as np
import pytest

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.config import ModelConfig
from twostroke.models.gguf_config import config_from_gguf
from twostroke.models.rope_scaling import RopeScaling
from twostroke.program.builder import Layer
from twostroke.program.values import CacheSpec, RopeSpec, Weight

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 8,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}
SHAPES = {"token_embd.weight": (320, 64), "output.weight": (320, 64)}


def read(**changes: Any) -> ModelConfig:
    """The configuration with keys changed, `__` standing for a dot; None takes a key away."""
    metadata = METADATA | {f"llama.{key.replace('__', '.')}": value for key, value in changes.items()}
    return config_from_gguf({key: value for key, value in metadata.items() if value is not None}, SHAPES)


def test_defaults() -> None:
    assert read() == ModelConfig(
        architecture="llama",
        name="llama",
        num_layers=2,
        dim=64,
        num_heads=8,
        num_kv_heads=8,
        head_dim=8,
        ffn_dim=96,
        vocab_size=320,
        context_length=128,
        norm_eps=1e-5,
        rope_dim=8,
        rope_base=10000.0,
        rope_pairing="interleaved",
    )


def test_every_key_is_read() -> None:
    config = read(
        attention__head_count_kv=2,
        attention__key_length=16,
        attention__value_length=16,
        rope__dimension_count=12,
        rope__freq_base=500000.0,
    )
    assert (config.num_kv_heads, config.head_dim, config.rope_dim, config.rope_base) == (2, 16, 12, 500000.0)
    assert (config.q_dim, config.kv_dim) == (128, 32)
    assert config.rope(Layer(1)) == RopeSpec(12, 500000.0, "interleaved")
    assert config.cache(Layer(1)) == CacheSpec("blk.1.attention", 2, 16)


def test_the_name() -> None:
    assert config_from_gguf(METADATA | {"general.name": "Tiny"}, SHAPES).name == "Tiny"


def test_what_follows_from_the_tensors() -> None:
    plain = config_from_gguf(METADATA, SHAPES)
    assert (plain.tied_head, plain.qkv_bias, plain.attn_output_bias, plain.rope_factors) == (False,) * 4
    assert plain.head == "output"
    shapes = {"token_embd.weight": (400, 64), "blk.0.attn_q.bias": (64,), "blk.0.attn_output.bias": (64,)}
    config = config_from_gguf(METADATA, shapes | {"rope_freqs.weight": (4,)})
    assert (config.tied_head, config.qkv_bias, config.attn_output_bias, config.rope_factors) == (True,) * 4
    assert (config.vocab_size, config.head) == (400, "token_embd")
    assert config.rope(Layer(0)) == RopeSpec(8, 10000.0, "interleaved", factors=Weight("rope_freqs.weight", (4,)))


def test_without_tensors_the_vocabulary_is_the_tokenizers() -> None:
    assert config_from_gguf(METADATA | {"tokenizer.ggml.tokens": ["a", "b", "c"]}, {}).vocab_size == 3


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.uint64])
def test_equal_numbers_for_all_layers(dtype: type) -> None:
    assert read(attention__head_count_kv=np.array([4, 4], dtype)).num_kv_heads == 4


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        ({"rope__scaling__type": "none", "rope__scaling__factor": 4.0}, 1.0),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}, 4.0),
        ({"rope__scaling__factor": 4.0}, 4.0),
        ({"rope__scale_linear": 2.0}, 2.0),
        ({"rope__scale_linear": 2.0, "rope__scaling__factor": 4.0}, 4.0),
    ],
)
def test_linear_scaling(changes: dict[str, Any], factor: float) -> None:
    config = read(**changes)
    assert config.rope_scaling == (None if factor == 1.0 else RopeScaling("linear", factor))
    rope = config.rope(Layer(0))
    assert rope is not None
    assert rope.divisors == (None if factor == 1.0 else (factor,) * 4)


REQUIRED = [key.removeprefix("llama.") for key in METADATA if key.startswith("llama.")]
INTEGERS = [
    *(key for key in REQUIRED if not key.endswith("epsilon")),
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "rope.dimension_count",
]
NUMBERS = ["attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.factor", "rope.scale_linear"]


def assert_refused(key: str, value: Any) -> None:
    with pytest.raises(ModelFileError, match=rf"metadata 'llama\.{key}'"):
        read(**{key.replace(".", "__"): value})


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_key_is_named(key: str) -> None:
    assert_refused(key, None)


@pytest.mark.parametrize("key", INTEGERS)
@pytest.mark.parametrize(
    "value",
    [0, -1, 2**31 + 1, 2**63, 1.0, True, "8", ["8"], np.array([], np.int32), np.array([8.0]), np.array([0, 0])],
    ids=str,
)
def test_a_bad_integer_is_named(key: str, value: Any) -> None:
    assert_refused(key, value)


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("value", [0, -1.0, 1e13, float("nan"), float("inf"), True, "1", np.array([1.0])], ids=str)
def test_a_bad_number_is_named(key: str, value: Any) -> None:
    assert_refused(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention.head_count", 7),  # does not divide the 64 of embedding_length
        ("attention.head_count_kv", 3),  # does not divide 8 heads
        ("attention.head_count_kv", 16),
        ("rope.dimension_count", 7),
        ("rope.dimension_count", 10),  # beyond the head
        ("block_count", 1025),
    ],
)
def test_sizes_that_do_not_fit_are_named(key: str, value: int) -> None:
    assert_refused(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope.scaling.type", "ntk"),
        ("attention.head_count_kv", np.array([4, 8])),
        ("attention.value_length", 16),
        ("attention.causal", False),
        ("attention.clamp_kqv", 8.0),
    ],
)
def test_what_is_not_supported_is_named(key: str, value: Any) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"metadata 'llama\.{key}'"):
        read(**{key.replace(".", "__"): value})


def test_neutral_values_pass() -> None:
    assert read(attention__sliding_window=0, attention__causal=True, expert_count=0) == read()


def test_a_linear_scaling_needs_its_factor() -> None:
    with pytest.raises(ModelFileError, match=r"rope\.scaling\.factor' is missing"):
        read(rope__scaling__type="linear")


@pytest.mark.parametrize("value", [None, "", 3])
def test_the_architecture_is_a_name(value: Any) -> None:
    metadata = {key: v for key, v in (METADATA | {"general.architecture": value}).items() if v is not None}
    with pytest.raises(ModelFileError, match=r"general\.architecture"):
        config_from_gguf(metadata, SHAPES)


@pytest.mark.parametrize("shape", [(320, 63), (320,), (1 << 25, 64)])
def test_a_table_of_another_shape_is_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelFileError, match=r"token_embd|vocabulary"):
        config_from_gguf(METADATA, {"token_embd.weight": shape})


def test_more_tokens_than_rows_are_refused() -> None:
    with pytest.raises(ModelFileError, match=r"321 tokens.*320 rows"):
        config_from_gguf(METADATA | {"tokenizer.ggml.tokens": ["a"] * 321}, SHAPES)


def test_no_vocabulary_is_refused() -> None:
    with pytest.raises(ModelFileError, match="vocabulary"):
        config_from_gguf(METADATA, {})
