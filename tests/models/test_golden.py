"""Every family against the logits that `transformers` gives for tiny random checkpoints, from both formats."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden_families import FOLDER, HF_ONLY, IN_GGUF, NAMES
from tests.models.family_gguf import write_family_gguf

from twostroke.errors import UnsupportedModelError
from twostroke.models.hf_config import ARCHITECTURES
from twostroke.models.load import Model, dequantized, load_model
from twostroke.models.registry import FAMILIES
from twostroke.program.passes import fuse
from twostroke.program.phase import Phase
from twostroke.program.reference import ReferenceExecutor
from twostroke.weights.gguf_writer import write_gguf
from twostroke.weights.tensor_types import TensorType

SCALINGS: Mapping[str, tuple[dict[str, Any], int]] = json.loads((FOLDER / "llama" / "scalings.json").read_text())
TOLERANCE = 1e-4
MAX_BYTES = 300_000


def golden(name: str) -> Mapping[str, np.ndarray]:
    return dict(np.load(FOLDER / name / "golden.npz"))


def logits_of(model: Model, ids: np.ndarray, chunks: tuple[int, ...] = ()) -> np.ndarray:
    """Logits of every row in float32 from the fused program, the tokens given in chunks that end at these places."""
    with_source = model.source
    executor = ReferenceExecutor(fuse(model.program), dequantized(with_source))
    state = executor.new_state()
    logits = np.concatenate([executor.forward(state, part)["logits"] for part in np.split(ids, chunks)])
    with_source.close()
    return logits


def test_every_family_is_here() -> None:
    kinds = {json.loads((FOLDER / name / "config.json").read_text())["model_type"] for name in NAMES}
    encoders = {kind for kind, architecture in ARCHITECTURES.items() if architecture == "bert"}  # see test_bert
    assert kinds == set(ARCHITECTURES) - {"kimi_k2"} - encoders  # DeepSeek V3 by another name
    assert set(ARCHITECTURES.values()) == set(FAMILIES)


@pytest.mark.parametrize("name", NAMES)
def test_checkpoints_are_small_and_prompts_longer_than_windows(name: str) -> None:
    assert sum(file.stat().st_size for file in (FOLDER / name).iterdir()) < MAX_BYTES
    window = json.loads((FOLDER / name / "config.json").read_text()).get("sliding_window") or 0
    truth = golden(name)
    assert len(truth["ids"]) > window + 10
    assert truth["logits"].std() > 0.2
    assert len(set(truth["logits"].argmax(axis=1).tolist())) > 5


@pytest.mark.parametrize("name", NAMES)
def test_from_safetensors(name: str) -> None:
    truth = golden(name)
    model = load_model(FOLDER / name)
    assert (model.unused_tensors, model.warnings, model.metadata) == ((), (), {})
    found = logits_of(model, truth["ids"])
    np.testing.assert_allclose(found, truth["logits"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", IN_GGUF)
def test_from_gguf(name: str, tmp_path: Path) -> None:
    truth = golden(name)
    model = load_model(write_family_gguf(FOLDER / name, tmp_path / "model.gguf"))
    found = logits_of(model, truth["ids"])
    np.testing.assert_allclose(found, truth["logits"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kind", [TensorType.F16, TensorType.Q8_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", IN_GGUF)
def test_from_packed_types(name: str, kind: TensorType, tmp_path: Path) -> None:
    """Fused tensors and stacked experts are cut out of packed blocks: what is left is the rounding of weights.

    It may change which experts a row chooses.
    """
    truth = golden(name)
    found = logits_of(load_model(write_family_gguf(FOLDER / name, tmp_path / "model.gguf", kind=kind)), truth["ids"])
    error = np.sqrt(np.mean((found - truth["logits"]) ** 2)) / truth["logits"].std()
    assert error < {TensorType.F16: 0.01, TensorType.Q8_0: 0.2}[kind]


@pytest.mark.parametrize("name", NAMES)
def test_in_chunks(name: str) -> None:
    truth = golden(name)
    found = logits_of(load_model(FOLDER / name), truth["ids"], (1, 2, 20, 33))
    np.testing.assert_allclose(found, truth["logits"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", sorted(HF_ONLY))
def test_generated_rows_one_by_one_after_a_prompt(name: str) -> None:
    """With what the request keeps, in the decode form of ops that have one."""
    truth = golden(name)
    model = load_model(FOLDER / name)
    executor = ReferenceExecutor(fuse(model.program), dequantized(model.source))
    state = executor.new_state()
    found = [executor.forward(state, truth["ids"][:18])["logits"]]
    found += [executor.forward(state, [token], phase=Phase.DECODE)["logits"] for token in truth["ids"][18:]]
    np.testing.assert_allclose(np.concatenate(found), truth["logits"], rtol=0, atol=TOLERANCE)
    model.source.close()


def test_other_gguf_files_are_refused_by_name(tmp_path: Path) -> None:
    architectures = {load_model(FOLDER / name).config.architecture for name in HF_ONLY}
    for architecture in architectures:
        path = tmp_path / "model.gguf"
        write_gguf(path, {"general.architecture": architecture}, {}, lambda name: np.empty(0, np.uint8))
        with pytest.raises(UnsupportedModelError, match=f"{architecture!r} is read from Hugging Face directories only"):
            load_model(path)


def rewritten(name: str, folder: Path, **changes: Any) -> Path:
    """A copy of a golden checkpoint with keys of config.json changed, None standing for absence."""
    config = json.loads((FOLDER / name / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    (folder / "model.safetensors").write_bytes((FOLDER / name / "model.safetensors").read_bytes())
    return folder


@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling with rope_type", "rope_scaling with type"])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_rope_scalings_in_every_spelling(scaling: str, spelling: str, tmp_path: Path) -> None:
    rope, context = SCALINGS[scaling]
    rope = dict(rope)
    changes: dict[str, Any] = {"max_position_embeddings": rope.pop("max_position_embeddings", 64)}
    if spelling == "rope_parameters":
        changes["rope_parameters"] = rope
    else:
        changes |= {"rope_parameters": None, "rope_theta": rope.pop("rope_theta")}
        if spelling.endswith(" type"):
            rope["type"] = rope.pop("rope_type")
        changes["rope_scaling"] = rope
    truth = golden("llama")
    model = load_model(rewritten("llama", tmp_path, **changes), context=context)
    found = logits_of(model, truth["ids"])
    np.testing.assert_allclose(found, truth[scaling], rtol=0, atol=TOLERANCE)
    assert np.abs(found - truth["logits"]).max() > 0.1  # and it is not what no scaling gives


@pytest.mark.parametrize("scaling", ["linear", "yarn", "llama3"])
def test_rope_scalings_from_gguf(scaling: str, tmp_path: Path) -> None:
    truth = golden("llama")
    folder = tmp_path / "directory"
    folder.mkdir()
    rewritten("llama", folder, rope_parameters=SCALINGS[scaling][0])
    found = logits_of(load_model(write_family_gguf(folder, tmp_path / "model.gguf")), truth["ids"])
    np.testing.assert_allclose(found, truth[scaling], rtol=0, atol=TOLERANCE)


def test_longrope_takes_its_short_factors_within_the_original_context(tmp_path: Path) -> None:
    truth = golden("phi3")
    rope = json.loads((FOLDER / "phi3" / "config.json").read_text())["rope_parameters"]
    rope = {**rope, "factor": 4.0, "original_max_position_embeddings": 64}
    folder = rewritten("phi3", tmp_path, rope_parameters=rope, original_max_position_embeddings=64)
    found = logits_of(load_model(folder), truth["ids"])
    np.testing.assert_allclose(found, truth["short"], rtol=0, atol=TOLERANCE)


def with_head(name: str, folder: Path, head: np.ndarray | None) -> Path:
    """A copy of a golden checkpoint whose output matrix is `head`, or is left out."""
    from safetensors.numpy import load_file, save_file

    folder.mkdir()
    tensors = load_file(FOLDER / name / "model.safetensors")
    tensors.pop("lm_head.weight", None)
    save_file(tensors if head is None else {**tensors, "lm_head.weight": head}, folder / "model.safetensors")
    (folder / "config.json").write_bytes((FOLDER / name / "config.json").read_bytes())
    return folder


def test_a_tied_checkpoint_may_hold_its_head_twice(tmp_path: Path) -> None:
    """Equal to the table, it changes nothing; if it differs it is used, and a warning says so."""
    from safetensors.numpy import load_file

    truth, table = golden("qwen2"), load_file(FOLDER / "qwen2" / "model.safetensors")["model.embed_tokens.weight"]
    same = load_model(with_head("qwen2", tmp_path / "same", table))
    assert (same.config.tied_head, same.warnings) == (True, ())
    np.testing.assert_allclose(logits_of(same, truth["ids"]), truth["logits"], rtol=0, atol=TOLERANCE)
    other = load_model(with_head("qwen2", tmp_path / "other", 2 * table))
    assert not other.config.tied_head
    (warning,) = other.warnings
    assert "lm_head.weight is used" in warning
    np.testing.assert_allclose(logits_of(other, truth["ids"]), 2 * truth["logits"], rtol=0, atol=2 * TOLERANCE)


@pytest.mark.parametrize("name", ["qwen2", "llama"])
def test_without_a_head_logits_come_from_the_table(name: str, tmp_path: Path) -> None:
    """Also where the configuration does not say that the two are tied."""
    model = load_model(with_head(name, tmp_path / "model", None))
    assert model.config.tied_head
    assert "output.weight" not in model.program.weights
    logits = logits_of(model, golden(name)["ids"])
    if name == "qwen2":
        np.testing.assert_allclose(logits, golden(name)["logits"], rtol=0, atol=TOLERANCE)


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    """Biases that the configuration does not tell of are not left out in silence."""
    with pytest.raises(UnsupportedModelError, match=r"self_attn\.k_proj\.bias' has no place in a llama model"):
        load_model(rewritten("llama", tmp_path, attention_bias=False))
