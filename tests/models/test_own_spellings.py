"""Families with a record of their own: text models inside others, checkpoints without a prefix, what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.golden_families import FOLDER

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.hf_config import config_from_hf
from twostroke.models.load import dequantized, load_model
from twostroke.program.reference import ReferenceExecutor


def facts(name: str, **changes: Any) -> dict[str, Any]:
    config = json.loads((FOLDER / name / "config.json").read_text()) | changes
    return {key: value for key, value in config.items() if value is not None}


@pytest.mark.parametrize("name", ["gemma4", "llama4", "qwen35", "qwen35moe"])
def test_the_text_model_of_one_with_more(name: str) -> None:
    text = facts(name)
    wrapper = {"model_type": text["model_type"].removesuffix("_text"), "text_config": text, "vision_config": {}}
    assert config_from_hf(wrapper) == config_from_hf(text)


def test_gpt2_as_it_was_published(tmp_path: Path) -> None:
    """Without a prefix, with buffers that are no weights, and without the keys that came later."""
    tensors = {
        name.removeprefix("transformer."): tensor
        for name, tensor in load_file(FOLDER / "gpt2" / "model.safetensors").items()
    }
    buffers = {f"h.{layer}.attn.bias": np.ones((1, 1, 64, 64), np.float32) for layer in range(2)}
    save_file({**tensors, **buffers}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(facts("gpt2", n_inner=None, n_ctx=64, tie_word_embeddings=None)))
    model = load_model(tmp_path)
    assert set(model.unused_tensors) == set(buffers)
    executor = ReferenceExecutor(model.program, dequantized(model.source))
    truth = np.load(FOLDER / "gpt2" / "golden.npz")
    found = executor.forward(executor.new_state(), truth["ids"])["logits"]
    np.testing.assert_allclose(found, truth["logits"], rtol=0, atol=1e-4)
    model.source.close()


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("gemma4", {"num_kv_shared_layers": 3}, "'num_kv_shared_layers' is 3"),
        ("deepseek3", {"scoring_func": "softmax"}, "'scoring_func' is 'softmax'"),
        ("deepseek2", {"topk_method": "noaux_tc"}, "'topk_method' is 'noaux_tc'"),
        ("deepseek2", {"n_group": 3}, "'n_group' is 3"),
        ("deepseek2", {"topk_group": 1}, "1 of them do not hold 3 of 8 experts"),
        ("deepseek2", {"qk_rope_head_dim": 3}, "'qk_rope_head_dim' is 3, which is odd"),
        ("qwen3next", {"linear_num_value_heads": 3}, "'linear_num_value_heads' is 3"),
        ("qwen3next", {"layer_types": ["mamba"] * 4}, "'layer_types' names 'mamba'"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "'scale_attn_by_inverse_layer_idx' is true"),
    ],
)
def test_what_would_change_the_arithmetic_is_refused(name: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises((ModelFileError, UnsupportedModelError), match=said):
        config_from_hf(facts(name, **changes))
