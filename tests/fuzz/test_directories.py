"""Golden checkpoints of every family with damaged configurations, headers and numbers: what is accepted is run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.bounds import count_accepted
from tests.fuzz.mutate import damage_value, rewrite
from tests.fuzz.test_models import forward
from tests.fuzz.test_safetensors import damage_file
from tests.golden_families import FOLDER, NATIVE

from twostroke.models.load import load_model

IDS = list(range(5, 31))  # longer than the windows of 16 and 24 tokens


def test_damaged_checkpoints(tmp_path: Path, num_mutants: int) -> None:
    """By both executors; the configuration of one in two mutants is damaged, else the tensors' file."""

    def attempt(seed: int) -> int:
        rng, sound = np.random.default_rng(seed), FOLDER / NATIVE[seed % len(NATIVE)]
        config: dict[str, Any] = json.loads((sound / "config.json").read_text())
        tensors = (sound / "model.safetensors").read_bytes()
        if rng.random() < 0.5:
            config = damage_value(config, rng)
        else:
            tensors = damage_file(tensors, rng)
        rewrite(tmp_path / "config.json", json.dumps(config).encode())
        rewrite(tmp_path / "model.safetensors", tensors)
        model = load_model(tmp_path)
        try:
            forward(model, [token_id % model.config.vocab_size for token_id in IDS])
        finally:
            model.source.close()
        return len(tensors)

    num_mutants = -(-num_mutants // 3)  # each is two models run, whose tensors `test_safetensors` damages too
    accepted = count_accepted(range(num_mutants), attempt)
    assert 0.05 * num_mutants < accepted < 0.9 * num_mutants
