"""Models to plan, by name, configuration or file; their published sizes to the byte."""

import json
from pathlib import Path

import pytest
from tests.tiny import write_tiny_gguf

from twostroke.errors import ConfigError, ModelFileError, ModelNotFoundError
from twostroke.roofline.memory_sum import token_bytes
from twostroke.roofline.planned_model import find_planned
from twostroke.roofline.planner import Scenario, make_plan
from twostroke.roofline.target import find_target


def test_a_13b_model_in_16_bits_is_26_gigabytes_of_which_a_token_reads_25_7() -> None:
    model = find_planned("llama-2-13b", "f16")
    assert model.weight_bytes == 2 * 13_015_864_320 + 2 * 81 * 5120  # norms in 32 bits
    work = make_plan(model, find_target("a100 sxm 80gb"), Scenario(prompt=1, answer=1)).decode.work
    assert work.weight_bytes == model.weight_bytes - 2 * 5120 * (32000 - 1)  # one row of the untied embedding
    assert (round(model.weight_bytes / 1e9, 1), round(work.weight_bytes / 1e9, 1)) == (26.0, 25.7)
    assert model.has_own_embedding


def test_a_tied_embedding_is_read_whole() -> None:
    model = find_planned("qwen3-4b")
    assert (model.weights, model.weight_class, model.has_own_embedding) == ("bf16", "float", False)
    assert model.weight_bytes == pytest.approx(8.045e9, rel=1e-3)


@pytest.mark.parametrize(
    ("weights", "bits", "kind"),
    [("q4_k_m", 4.894, "k_quant"), ("q8_0", 8.501, "quantised"), ("bf16", 16.0, "float"), ("q6_k", 6.563, "k_quant")],
)
def test_bits_per_weight_of_llama_3_1_8b(weights: str, bits: float, kind: str) -> None:
    model = find_planned("llama-3.1-8b", weights)
    assert 8 * model.weight_bytes / model.num_parameters == pytest.approx(bits, rel=5e-3)
    assert model.weight_class == kind


@pytest.mark.parametrize(
    ("name", "effective", "kv_layers"), [("gemma-4-e2b", 2.3e9, 12 + 2 * 3), ("gemma-4-e4b", 4.6e9, 2 * (20 + 2 * 4))]
)
def test_embeddings_of_each_layer_are_memory_of_which_a_token_reads_a_row(
    name: str, effective: float, kv_layers: int
) -> None:
    """The model card's 2.3 billion "effective" parameters are those without these tables. Only layers that do not share
    keep keys and values, those without a window of twice the size."""
    model = find_planned(name)
    work = make_plan(model, find_target("m3 max 40c"), Scenario(prompt=1, answer=1)).decode.work
    assert work.weight_bytes / 2 == pytest.approx(effective, rel=0.015)
    config = model.config
    assert model.table_bytes == 2 * config.vocab_size * config.num_layers * 256
    row = 2 * config.dim  # of the first embedding, which makes the logits too
    assert model.weight_bytes - work.weight_bytes + row == 2 * (config.vocab_size - 1) * config.num_layers * 256
    assert token_bytes(model, "f16") == kv_layers * 2 * 256 * 2


def test_gpt_oss_comes_in_4_bits_and_counts_as_a_mixture() -> None:
    model = find_planned("gpt-oss-20b")
    assert (model.weights, model.weight_class) == ("mxfp4", "mixture")
    assert model.weight_bytes == pytest.approx(12.1e9, rel=0.01)


def test_a_configuration_is_enough(tmp_path: Path) -> None:
    facts = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(facts))
    expected = find_planned("llama-3-8b", "q4_k_m")
    for name in (str(path), str(tmp_path)):
        assert find_planned(name, "q4_k_m").weight_bytes == expected.weight_bytes
    path.write_text("[]")
    with pytest.raises(ModelFileError, match="not a configuration"):
        find_planned(str(path))


def test_of_a_file_its_own_types_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    model = find_planned(str(path))
    sizes = set(model.bits.values())
    assert model.num_parameters == sum(weight.num_elements for weight in model.program.weights.values())
    assert sizes and model.in_format("q8_0").weight_bytes != model.weight_bytes


def test_names_that_nothing_has_get_the_nearest() -> None:
    with pytest.raises(ModelNotFoundError, match=r"llama-3\.1-8b"):
        find_planned("lama-3.1-8b")
    with pytest.raises(ModelNotFoundError, match="no/such"):
        find_planned("./no/such.gguf")
    with pytest.raises(ConfigError, match="q4_k_m"):
        find_planned("llama-3.1-8b", "q4_k_n")
