"""Model directories damaged in seeded ways: headers, bytes, index, configuration, names and links."""

import shutil
import struct
from pathlib import Path

import numpy as np
from tests.fuzz.bounds import count_accepted
from tests.fuzz.mutate import damage_bytes, damage_json, rewrite
from tests.weights.hf_directory import bf16, safetensors_bytes, write_directory
from tests.weights.quantized_directory import GPTQ, Linear, awq, compressed, gptq, packed

from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.checkpoint_weights import CheckpointWeights
from twostroke.weights.dequantize import dequantize

INDEX = "model.safetensors.index.json"
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
PLAIN = {"a.weight": bf16(np.ones((4, 32))), "a.bias": np.ones(4, np.float32), "b.weight": np.ones((2, 3), np.float16)}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}


def read_all(path: Path, names: list[str]) -> int:
    """Open a directory and unpack each of its tensors, canonical names being its own."""
    with Checkpoint.open(path) as checkpoint:
        weights = CheckpointWeights(checkpoint, {name: name for name in names})
        for name in weights.names:
            info = weights.info(name)
            dequantize(weights.data(name), info.type, info.shape)
    return checkpoint.num_bytes


def test_damaged_files(tmp_path: Path, num_mutants: int) -> None:
    content = safetensors_bytes(PLAIN, {"format": "pt"})
    write_directory(tmp_path, {"model.safetensors": PLAIN})

    def attempt(seed: int) -> int:
        rewrite(tmp_path / "model.safetensors", damage_file(content, np.random.default_rng(seed)))
        return read_all(tmp_path, list(PLAIN))

    accepted = count_accepted(range(num_mutants), attempt)
    assert 0.03 * num_mutants < accepted < 0.6 * num_mutants


def damage_file(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage the JSON of the header, or any byte."""
    if rng.random() < 0.4:
        return damage_bytes(content, rng)
    (length,) = struct.unpack_from("<Q", content)
    text = damage_json(content[8 : 8 + length].decode(), rng)
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def test_damaged_indices_and_links(tmp_path: Path, num_mutants: int) -> None:
    (tmp_path / "secret.safetensors").write_bytes(safetensors_bytes(PLAIN))
    folder = tmp_path / "model"
    halves = [{name: PLAIN[name]} for name in ("a.weight", "b.weight")]

    def attempt(seed: int) -> int:
        rng = np.random.default_rng(seed)
        shutil.rmtree(folder, ignore_errors=True)
        write_directory(folder, dict(zip(SHARDS, halves, strict=True)))
        if rng.random() < 0.6:
            rewrite(folder / INDEX, damage_json((folder / INDEX).read_text(), rng))
        if rng.random() < 0.4:
            shard = folder / SHARDS[rng.integers(2)]
            shard.unlink()
            shard.symlink_to(["../secret.safetensors", shard.name, "/dev/zero", "config.json", "."][rng.integers(5)])
        return read_all(folder, ["a.weight", "b.weight"])

    accepted = count_accepted(range(num_mutants), attempt)
    assert 0.03 * num_mutants < accepted < 0.7 * num_mutants


def test_damaged_quantised_models(tmp_path: Path, num_mutants: int) -> None:
    """The configuration, the shapes and the numbers of quantised linears of every layout."""
    linear, eight = Linear(128, 64), Linear(128, 128, bits=8)
    fp8 = {"weight": ("F8_E4M3", np.zeros((16, 128), np.uint8)), "weight_scale_inv": np.ones((2, 1), np.float32)}
    models = [
        (gptq(linear), {**GPTQ, "group_size": 64}),
        (awq(linear), AWQ),
        (packed(linear, asymmetric=True), compressed(group_size=64, symmetric=False)),
        (packed(eight), compressed(8, strategy="channel", group_size=None)),
        (fp8, {"quant_method": "fp8", "weight_block_size": [8, 128]}),
    ]

    def attempt(seed: int) -> int:
        rng = np.random.default_rng(seed)
        tensors, quantization = models[seed % len(models)]
        named = {f"a.{name}": tensor for name, tensor in tensors.items()}
        write_directory(tmp_path, {"model.safetensors": named}, {"quantization_config": quantization})
        if rng.random() < 0.5:
            config = tmp_path / "config.json"
            rewrite(config, damage_json(config.read_text(), rng))
        else:
            file = tmp_path / "model.safetensors"
            rewrite(file, damage_file(file.read_bytes(), rng))
        return read_all(tmp_path, ["a.weight"])

    accepted = count_accepted(range(num_mutants), attempt)
    assert 0.03 * num_mutants < accepted < 0.7 * num_mutants
