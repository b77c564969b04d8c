"""Directories written as GGUF: what `transformers` gives, tensors as a converter makes them, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.golden_families import FOLDER, IN_GGUF
from tests.models.family_gguf import write_family_gguf
from tests.models.test_golden import SCALINGS, TOLERANCE, golden, logits_of
from tests.native.test_quantized_directories import logits_of as logits_in_float64
from tests.native.test_quantized_directories import write_gpt_oss, write_llama

from twostroke.errors import UnsupportedModelError
from twostroke.models.gguf_form import GGUFForm, gguf_keys
from twostroke.models.load import dequantized, load_model
from twostroke.weights.gguf_writer import write_gguf


def write_form(directory: Path, path: Path) -> Path:
    """The directory's model as GGUF, tensors in the types they have; without a tokenizer."""
    model = load_model(directory)
    form = GGUFForm(model)
    table = {name: (info.type, info.shape) for name, info in form.tensors.items()}
    write_gguf(path, gguf_keys(model.config), table, form.data)
    model.source.close()
    return path


@pytest.mark.parametrize("name", IN_GGUF)
def test_a_written_model_gives_what_its_checkpoint_gives(name: str, tmp_path: Path) -> None:
    truth = golden(name)
    model = load_model(write_form(FOLDER / name, tmp_path / "model.gguf"))
    np.testing.assert_allclose(logits_of(model, truth["ids"]), truth["logits"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", IN_GGUF)
def test_tensors_are_those_of_a_converter(name: str, tmp_path: Path) -> None:
    """Names, shapes and values, against the format's conventions written down a second time (tests' `family_gguf`)."""
    ours = {t.name: t for t in gguf.GGUFReader(write_form(FOLDER / name, tmp_path / "ours.gguf")).tensors}
    theirs = {t.name: t for t in gguf.GGUFReader(write_family_gguf(FOLDER / name, tmp_path / "theirs.gguf")).tensors}
    assert ours.keys() == theirs.keys()
    for tensor in theirs:
        np.testing.assert_allclose(ours[tensor].data, theirs[tensor].data, rtol=1e-6, err_msg=tensor)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scaling_of_rotation(scaling: str, tmp_path: Path) -> None:
    config = json.loads((FOLDER / "llama" / "config.json").read_text())
    rope, context = SCALINGS[scaling]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "model.safetensors").write_bytes((FOLDER / "llama" / "model.safetensors").read_bytes())
    changed = {**config, "rope_parameters": rope, "max_position_embeddings": context}
    (tmp_path / "in" / "config.json").write_text(json.dumps(changed))
    if rope["rope_type"] == "dynamic":
        with pytest.raises(UnsupportedModelError, match="kind 'dynamic' cannot be written as GGUF"):
            write_form(tmp_path / "in", tmp_path / "out.gguf")
        return
    ids = golden("llama")["ids"]
    expected = logits_of(load_model(tmp_path / "in"), ids)
    found = logits_of(load_model(write_form(tmp_path / "in", tmp_path / "out.gguf")), ids)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def test_quantised_checkpoints_are_written_too(tmp_path: Path) -> None:
    """Columns in activation order are put back; MXFP4 stays as it is."""
    quantized, plain = write_llama(tmp_path / "llama", activation_order=True)
    model = load_model(quantized)
    form = GGUFForm(model)
    other = load_model(plain)
    values = dequantized(form)("blk.1.ffn_down.weight")
    np.testing.assert_allclose(values, dequantized(other.source)("blk.1.ffn_down.weight"), rtol=1e-6)
    packed, _ = write_gpt_oss(tmp_path / "gpt-oss")
    written = write_form(packed, tmp_path / "gpt-oss.gguf")
    np.testing.assert_allclose(logits_in_float64(written), logits_in_float64(packed), rtol=0, atol=1e-6)
    for source in (model.source, other.source):
        source.close()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"unrotated_layers": frozenset({0})}, "unrotated_layers frozenset.*cannot be written as GGUF"),
        ({"activation": "gelu"}, "llama with activation 'gelu' cannot be written as GGUF, which would mean 'silu'"),
    ],
)
def test_what_the_format_cannot_say_is_refused(fields: dict[str, Any], message: str) -> None:
    model = load_model(FOLDER / "llama")
    model.source.close()
    with pytest.raises(UnsupportedModelError, match=message):
        gguf_keys(replace(model.config, **fields))


def test_a_family_that_gguf_files_are_not_read_of_is_refused() -> None:
    model = load_model(FOLDER / "cohere2")
    model.source.close()
    with pytest.raises(UnsupportedModelError, match=r"architecture 'cohere2' .* not from GGUF"):
        gguf_keys(model.config)
