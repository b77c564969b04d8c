"""Loading: a sound file gives a program whose weights are all there; anything else is refused by tensor or key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.tiny import write_tiny_gguf

from twostroke.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from twostroke.models.load import dequantized, load_model
from twostroke.program.passes import fuse
from twostroke.program.reference import ReferenceExecutor

K_QUANTS = {"default": "Q4_K", "token_embd": "Q6_K", "attn_v": "Q6_K"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "F32": {},
    "Q4_1 and Q8_0": {"types": {"default": "Q4_1", "token_embd": "Q8_0"}, "tied": False},
    "Q4_K and Q6_K": {"types": K_QUANTS, "dim": 256},
    "heads wider than dim": {"head_dim": 32, "rope_factors": True},
    "biases": {"qkv_bias": True},
}


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_sound_file_runs(tmp_path: Path, arch: str, layout: dict[str, Any]) -> None:
    model = load_model(write_tiny_gguf(tmp_path / "tiny.gguf", arch, **layout))
    assert model.unused_tensors == ()
    assert set(model.program.weights) == set(model.source.names)
    executor = ReferenceExecutor(fuse(model.program), dequantized(model.source))
    logits = executor.forward(executor.new_state(), range(50, 90))["logits"]
    assert logits.shape == (40, 320)
    assert np.isfinite(logits).all()
    assert 1 < logits.std() < 10
    assert len(set(logits.argmax(axis=1).tolist())) > 10  # tests that decode such a model see many tokens
    model.source.close()


def rewrite(path: Path, change: Callable[[str, np.ndarray, Any], tuple[str, np.ndarray, Any] | None]) -> Path:
    """The same file with each tensor (name, data, type) changed, or left out for None."""
    reader = gguf.GGUFReader(path)
    out = path.with_name("changed.gguf")
    writer = gguf.GGUFWriter(str(out), "llama")
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            kind = field.types[0]
            writer.add_key_value(key, field.contents(), kind, field.types[-1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        changed = change(tensor.name, tensor.data, tensor.tensor_type)
        if changed is not None:
            writer.add_tensor(changed[0], changed[1], raw_dtype=changed[2])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


@pytest.mark.parametrize("name", ["blk.1.ffn_up.weight", "output_norm.weight", "blk.0.attn_k.weight"])
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    path = rewrite(write_tiny_gguf(tmp_path / "tiny.gguf"), lambda *tensor: None if tensor[0] == name else tensor)
    with pytest.raises(ModelFileError, match=rf"changed\.gguf: tensor '{name}' is missing"):
        load_model(path)


@pytest.mark.parametrize("name", ["blk.1.ffn_up.weight", "output_norm.weight"])
def test_a_tensor_of_another_shape_is_named(tmp_path: Path, name: str) -> None:
    path = rewrite(
        write_tiny_gguf(tmp_path / "tiny.gguf"),
        lambda *tensor: (tensor[0], tensor[1][:-1], tensor[2]) if tensor[0] == name else tensor,
    )
    with pytest.raises(ModelFileError, match=rf"tensor '{name}' has shape .* needs"):
        load_model(path)


@pytest.mark.parametrize("name", ["blk.1.ffn_up.weight", "output_norm.weight"])
def test_a_tensor_of_a_type_that_is_not_supported_is_named(tmp_path: Path, name: str) -> None:
    path = rewrite(
        write_tiny_gguf(tmp_path / "tiny.gguf"),
        lambda *tensor: (
            (name, tensor[1].astype(np.float64), gguf.GGMLQuantizationType.F64) if tensor[0] == name else tensor
        ),
    )
    with pytest.raises(UnsupportedModelError, match=rf"tensor '{name}' has type F64"):
        load_model(path)


def test_a_tensor_that_would_change_a_layer_is_refused(tmp_path: Path) -> None:
    """Biases that the program does not add, since layer 0 has none of q, are not left out in silence."""
    path = rewrite(
        write_tiny_gguf(tmp_path / "tiny.gguf", qkv_bias=True),
        lambda *tensor: None if tensor[0] == "blk.0.attn_q.bias" else tensor,
    )
    with pytest.raises(UnsupportedModelError, match=r"tensor 'blk\.0\.attn_k\.bias' has no place in a llama model"):
        load_model(path)


def test_layers_beyond_the_last_are_reported(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", num_layers=3)
    reduced = path.read_bytes().replace(
        b"llama.block_count\x04\0\0\0\x03\0\0\0", b"llama.block_count\x04\0\0\0\x02\0\0\0"
    )
    path.write_bytes(reduced)
    model = load_model(path)
    assert len(model.unused_tensors) == 9
    assert all(name.startswith("blk.2.") for name in model.unused_tensors)


def test_errors_begin_with_the_file(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "mamba")
    with pytest.raises(UnsupportedModelError, match=rf"^{path}: architecture 'mamba' is not supported"):
        load_model(path)
    path = write_tiny_gguf(tmp_path / "tiny.gguf", metadata={"llama.rope.scaling.type": "ntk"})
    with pytest.raises(UnsupportedModelError, match=rf"^{path}: metadata 'llama\.rope\.scaling\.type' is 'ntk'"):
        load_model(path)
    with pytest.raises(ModelNotFoundError):
        load_model(tmp_path / "none.gguf")
