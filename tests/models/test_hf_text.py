"""Wrappers of text families: the text model runs, what is passed over is said; names of tensors in every spelling."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.models.test_golden import FOLDER, golden, logits_of

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.hf_config import config_from_hf
from twostroke.models.load import load_model

# Wrapper, the golden checkpoint that is its text model, prefixes of its layers and head, and a tensor of another model.
WRAPPERS = [
    ("gemma3", "gemma3", "language_model.model.", "language_model.lm_head", "vision_tower.a.weight"),
    ("gemma3", "gemma3", "model.language_model.", "lm_head", "model.vision_tower.a.weight"),
    ("mistral3", "mistral", "language_model.model.", "language_model.lm_head", "multi_modal_projector.a.weight"),
    ("llava", "llama", "language_model.model.", "language_model.lm_head", "vision_tower.a.weight"),
    ("smolvlm", "llama", "model.text_model.", "lm_head", "model.connector.a.weight"),
    ("qwen2_5_vl", "qwen2", "model.", "lm_head", "visual.a.weight"),
    ("qwen3_vl", "qwen3", "model.language_model.", "lm_head", "model.visual.a.weight"),
]


def write_wrapped(path: Path, name: str, kind: str, prefix: str, head: str, other: str) -> Path:
    """The golden checkpoint `name` under a wrapper's configuration and names."""
    text: dict[str, Any] = json.loads((FOLDER / name / "config.json").read_text())
    renamed = {"model.": prefix, "lm_head": head}
    tensors = {other: np.ones((2, 2), np.float32)}
    for raw, values in load_file(FOLDER / name / "model.safetensors").items():
        old = next(old for old in renamed if raw.startswith(old))
        tensors[renamed[old] + raw.removeprefix(old)] = values
    save_file(tensors, path / "model.safetensors")
    outer = {"model_type": kind, "vision_config": {"hidden_size": 8}}
    config = {**text, **outer} if kind == "qwen2_5_vl" else {**outer, "text_config": text}
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(("kind", "name", "prefix", "head", "other"), WRAPPERS)
def test_the_text_model_of_a_wrapper_runs(
    tmp_path: Path, kind: str, name: str, prefix: str, head: str, other: str
) -> None:
    truth = golden(name)
    model = load_model(write_wrapped(tmp_path, name, kind, prefix, head, other))
    tower = next(part for part in other.split(".") if part != "model")
    assert model.warnings == (f"{kind} runs as a text model; tensors passed over: 1 of {tower}",)
    np.testing.assert_allclose(logits_of(model, truth["ids"]), truth["logits"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["qwen3", "gptneox"])
def test_a_checkpoint_saved_without_its_head(tmp_path: Path, name: str) -> None:
    """As embedding models are: names without the first part, and no output matrix, so that the table serves as it."""
    tensors = load_file(FOLDER / name / "model.safetensors")
    bare = {raw.partition(".")[2]: values for raw, values in tensors.items() if raw.startswith(("model.", "gpt_neox."))}
    save_file(bare, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((FOLDER / name / "config.json").read_text())
    model = load_model(tmp_path, ("hidden",))
    assert model.config.tied_head
    model.source.close()


def test_what_transformers_leaves_out_of_a_text_config() -> None:
    """Gemma 3 4B as published, whose text_config has six keys; the values are those of its model card's report."""
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    config = config_from_hf({"model_type": "gemma3", "text_config": text, "vision_config": {}})
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.vocab_size) == (8, 4, 256, 262208)
    assert (config.context_length, config.norm_eps, config.attention_scale) == (131072, 1e-6, 256**-0.5)
    assert (config.windows[:6], config.rope_base, config.local_rope_base) == ((1024,) * 5 + (None,), 1e6, 1e4)


def test_multimodal_rotation_is_the_plain_one_for_text() -> None:
    config = json.loads((FOLDER / "qwen2" / "config.json").read_text())
    del config["rope_parameters"]
    sections = {"type": "mrope", "mrope_section": [2, 3, 3]}
    wrapped = config_from_hf({**config, "rope_theta": 5e5, "model_type": "qwen2_vl", "rope_scaling": sections})
    assert (wrapped.architecture, wrapped.rope_scaling, wrapped.rope_base) == ("qwen2", None, 5e5)
    with pytest.raises(UnsupportedModelError, match="'mrope'"):
        config_from_hf({**config, "rope_scaling": {**sections, "factor": 1.0}})


def test_wrappers_that_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="model_type 'bloom' is not supported"):
        config_from_hf({"model_type": "llava", "text_config": {"model_type": "bloom"}})
    with pytest.raises(UnsupportedModelError, match="model_type 'paligemma' is not supported"):
        config_from_hf({"model_type": "paligemma", "text_config": {"model_type": "gemma2"}})
    with pytest.raises(ModelFileError, match="'text_config' is not an object"):
        config_from_hf({"model_type": "gemma3", "text_config": [1]})
