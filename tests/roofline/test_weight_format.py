"""Bits per weight: llama.cpp's published figures, the file that `quantize` writes, and formats of checkpoints."""

import pytest

from twostroke.errors import ConfigError
from twostroke.models.registry import build_program
from twostroke.program.values import Weight
from twostroke.roofline.model_catalogue import load_models
from twostroke.roofline.weight_format import find_format, load_formats

FORMATS = load_formats()
MODELS = load_models()


def weights_of(name: str) -> dict[str, Weight]:
    return build_program(MODELS[name].config()).weights


# Of Llama-3.1-8B. Source: llama.cpp, tools/quantize/README.md.
PUBLISHED = {
    "IQ4_XS": 4.4597,
    "IQ4_NL": 4.6818,
    "Q2_K_S": 2.9697,
    "Q2_K": 3.1593,
    "Q3_K_S": 3.6429,
    "Q3_K_L": 4.2979,
    "Q4_K_S": 4.6672,
    "Q4_K_M": 4.8944,
    "Q5_K_S": 5.5704,
    "Q5_K_M": 5.7036,
    "Q6_K": 6.5633,
    "Q8_0": 8.5008,
    "F16": 16.0005,
}


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_mixtures_of_llama_3_1_8b(name: str, published: float) -> None:
    assert find_format(name, FORMATS).bits_per_weight(weights_of("llama-3.1-8b")) == pytest.approx(published, abs=1e-4)


def test_a_published_mean_holds_for_every_matrix() -> None:
    found = FORMATS["iq3_m"].bits_per_weight(weights_of("llama-3.1-8b"))
    assert found == pytest.approx(3.7628, rel=5e-4)  # vectors add their 32 bits


@pytest.mark.parametrize(
    ("model", "name", "published"),
    # The files on the hub: ggml-org/gpt-oss-20b-GGUF of 12.1 GB, openai/gpt-oss-20b of 13.76 GB.
    [("gpt-oss-20b", "mxfp4", 12.1e9), ("gpt-oss-20b", "mxfp4-bf16", 13.76e9)],
)
def test_sizes_of_published_files(model: str, name: str, published: float) -> None:
    weights = weights_of(model)
    bits = FORMATS[name].weight_bits(weights)
    total = sum(weight.num_elements * bits[weight.name] / 8 for weight in weights.values())
    assert total == pytest.approx(published, rel=0.006)


def test_checkpoints_keep_embedding_and_output_wide() -> None:
    bits = FORMATS["awq"].weight_bits(weights_of("llama-3-8b"))
    assert bits["token_embd.weight"] == bits["output.weight"] == bits["blk.0.attn_norm.weight"] == 16
    assert bits["blk.31.ffn_down.weight"] == 4 + (16 + 4) / 128


def test_the_embedding_that_makes_logits_gets_the_type_of_an_output() -> None:
    assert FORMATS["q4_k"].weight_bits(weights_of("smollm2-135m"))["token_embd.weight"] == 8.5  # rows of 576: Q8_0
    assert FORMATS["q4_k"].weight_bits(weights_of("qwen2.5-1.5b"))["token_embd.weight"] == 6.5625


def test_rows_that_are_no_whole_blocks_get_smaller_ones() -> None:
    assert FORMATS["q4_k"].weight_bits(weights_of("smollm2-135m"))["blk.0.attn_q.weight"] == 5.5


def test_routers_and_norms_stay_wide() -> None:
    bits = FORMATS["q4_k_m"].weight_bits(weights_of("qwen3-30b-a3b"))
    assert bits["blk.0.ffn_gate_inp.weight"] == bits["output_norm.weight"] == 32


def test_names_and_aliases_are_of_one_format_each() -> None:
    for found in FORMATS.values():
        assert all(find_format(name, FORMATS) is found for name in (found.name.upper(), *found.aliases))


def test_the_nearest_formats_are_suggested() -> None:
    with pytest.raises(ConfigError, match=r"no weight format 'q4_k_n'; nearest: .*q4_k_m"):
        find_format("q4_k_n")


def test_a_number_of_bits_is_a_format() -> None:
    found = find_format("4.85 bpw", FORMATS)
    assert found.name == "4.85bpw"
    assert found.bits_per_weight(weights_of("llama-3.1-8b")) == pytest.approx(4.85, rel=5e-4)
    for wrong in ("0bpw", "65bpw", "-1bpw", "bpw"):
        with pytest.raises(ConfigError, match="no weight format"):
            find_format(wrong, FORMATS)
