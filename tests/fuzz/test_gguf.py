"""GGUF files damaged in seeded ways: in their bytes, in the fields that say how to read on, and as shards."""

import os
from pathlib import Path

import numpy as np
from tests.fuzz.bounds import count_accepted
from tests.fuzz.mutate import BOUNDARIES, damage_bytes, rewrite
from tests.weights.gguf_writer import Field, sound_file
from tests.weights.test_gguf_damage import spoil

from twostroke.weights.dequantize import dequantize
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.gguf_writer import write_gguf
from twostroke.weights.tensor_types import TensorType

SHARDS = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]


def read_all(path: Path) -> None:
    """Open a file and unpack every tensor that can be."""
    with GGUFFile.open(path) as file:
        for name in file.names:
            info = file.info(name)
            dequantize(file.data(name), info.type, info.shape)


def test_damaged_files(tmp_path: Path, num_mutants: int) -> None:
    content, fields = sound_file()
    path = tmp_path / "mutant.gguf"

    def attempt(seed: int) -> int:
        rng = np.random.default_rng(seed)
        mutant = damage(content, fields, rng)
        rewrite(path, mutant)
        read_all(path)
        return len(mutant)

    accepted = count_accepted(range(num_mutants), attempt)
    assert 0.03 * num_mutants < accepted < 0.6 * num_mutants  # both outcomes are really tried


def damage(content: bytes, fields: list[Field], rng: np.random.Generator) -> bytes:
    mutant = bytearray(content)
    for _ in range(int(rng.integers(0, 3))):
        spoil(mutant, fields[rng.integers(len(fields))], rng)
    return damage_bytes(bytes(mutant), rng) if rng.random() < 0.6 or bytes(mutant) == content else bytes(mutant)


def test_damaged_shards(tmp_path: Path, num_mutants: int) -> None:
    """Numbers, counts, names, links and contents of two shards that belong together."""
    (tmp_path / "secret.gguf").write_bytes(sound_file()[0])
    folder = tmp_path / "model"

    def attempt(seed: int) -> int:
        rng = np.random.default_rng(seed)
        folder.mkdir()
        try:
            write_shards(folder, rng)
            rearrange(folder, rng)
            read_all(folder / SHARDS[rng.integers(2)])
            return sum(path.stat().st_size for path in folder.iterdir())
        finally:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()

    accepted = count_accepted(range(num_mutants), attempt)
    assert 0.03 * num_mutants < accepted < 0.6 * num_mutants


def write_shards(folder: Path, rng: np.random.Generator) -> None:
    for number, name in enumerate(SHARDS):
        split = {"split.no": number, "split.count": 2, "split.tensors.count": 2}
        if rng.random() < 0.4:
            key = list(split)[rng.integers(3)]
            split[key] = BOUNDARIES[rng.integers(len(BOUNDARIES))]
        tensors = {f"t{number if rng.random() < 0.9 else 0}": (TensorType.Q8_0, (2, 32))}
        write_gguf(folder / name, split, tensors, lambda _: np.zeros(68, np.uint8))
        if rng.random() < 0.3:
            rewrite(folder / name, damage_bytes((folder / name).read_bytes(), rng))


def rearrange(folder: Path, rng: np.random.Generator) -> None:
    """Remove, rename, link or exchange shards."""
    first, second = (folder / name for name in SHARDS)
    way = int(rng.integers(10))
    if way == 0:
        second.unlink()
    elif way == 1:
        first.rename(folder / "m-00001-of-00003.gguf")
    elif way == 2:
        second.unlink()
        second.symlink_to(["../secret.gguf", second.name, "/dev/zero", first.name][rng.integers(4)])
    elif way == 3:
        os.replace(first, second)
    elif way == 4:
        second.unlink()
        os.mkfifo(second)
