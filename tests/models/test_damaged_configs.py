"""Every family's config.json and GGUF keys, damaged at random: accepted and finite, or refused by our errors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fuzz.mutate import rewrite
from tests.golden_families import FOLDER, IN_GGUF, NAMES
from tests.models.family_gguf import write_family_gguf

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.load import Model, load_model
from twostroke.program.passes import fuse
from twostroke.program.rope import inverse_frequencies
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.gguf_writer import write_gguf

NUM_MUTANTS = 20
NUMBERS: list[Any] = [0, 1, -1, 2, 3, 7, 1 << 31, 1 << 63, 0.0, 0.5, -1.0, 1e-45, 1e30, float("nan"), float("inf")]
VALUES = [*NUMBERS, 10**300, True, False, None, "", "x", [], [1], ["full_attention"], {}, {"type": "yarn"}]


def damage(values: dict[str, Any], rng: np.random.Generator, choices: list[Any]) -> None:
    """Change or drop one value, of a nested object now and then."""
    key = list(values)[rng.integers(len(values))]
    if isinstance(values[key], dict) and values[key] and rng.random() < 0.8:
        damage(values[key], rng, choices)
    elif rng.random() < 0.15:
        del values[key]
    else:
        values[key] = choices[rng.integers(len(choices))]


def is_refused(path: Path) -> bool:
    try:
        model = load_model(path)
    except (ModelFileError, UnsupportedModelError) as error:
        assert len(str(error)) < 1000
        return True
    check(model)
    model.source.close()
    return False


def check(model: Model) -> None:
    """Numbers that no executor can work with do not come out."""
    for op in fuse(model.program).ops:
        rope = getattr(op, "rope", None)
        if rope is not None and rope.factors is None:
            assert np.isfinite(inverse_frequencies(rope, None)).all()
            assert np.isfinite(rope.magnitude)
        for name in ("scale", "factor", "soft_cap", "cap"):
            assert np.isfinite(getattr(op, name, None) or 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_directories(name: str, tmp_path: Path) -> None:
    sound = (FOLDER / name / "config.json").read_text()
    (tmp_path / "model.safetensors").write_bytes((FOLDER / name / "model.safetensors").read_bytes())
    refused = 0
    for seed in range(NUM_MUTANTS):
        rng, config = np.random.default_rng(seed), json.loads(sound)
        for _ in range(1 + int(rng.integers(2))):
            damage(config, rng, VALUES)
        rewrite(tmp_path / "config.json", json.dumps(config).encode())
        refused += is_refused(tmp_path)
    assert 0.05 * NUM_MUTANTS < refused < 0.95 * NUM_MUTANTS


@pytest.mark.parametrize("name", IN_GGUF)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    path = write_family_gguf(FOLDER / name, tmp_path / "sound.gguf")
    refused = 0
    with GGUFFile.open(path) as sound:
        tensors = {name: (info.type, info.shape) for name, info in sound.tensors.items()}
        for seed in range(NUM_MUTANTS):
            rng, metadata = np.random.default_rng(seed), dict(sound.metadata)
            for _ in range(1 + int(rng.integers(2))):
                damage(metadata, rng, [*NUMBERS, True, "", "x", np.array([1, 2]), np.array([]), ["x"]])
            write_gguf(tmp_path / "mutant.gguf", metadata, tensors, sound.data)
            refused += is_refused(tmp_path / "mutant.gguf")
    assert refused > 0.05 * NUM_MUTANTS
