"""The tiny families that other tests run are sound: they load whole in every storage, and say different things."""

from pathlib import Path

import numpy as np
import pytest
from tests.tiny_families import ARCHITECTURES, KEYS, write_tiny_family

from twostroke.models.load import dequantized, load_model
from twostroke.models.registry import FAMILIES, HF_ARCHITECTURES
from twostroke.program.passes import fuse
from twostroke.program.reference import ReferenceExecutor

K_QUANTS = {"default": "Q4_K", "token_embd": "Q6_K", "attn_v": "Q6_K", "ffn_down_exps": "Q6_K"}


def test_every_family_is_here() -> None:
    """All that GGUF files are read of."""
    assert {ARCHITECTURES.get(family, family) for family in KEYS} == set(FAMILIES) - HF_ARCHITECTURES


@pytest.mark.parametrize("family", KEYS)
@pytest.mark.parametrize("layout", ["F32", "Q8_0", "K"])
def test_a_tiny_family_runs(tmp_path: Path, family: str, layout: str) -> None:
    fields = {"types": K_QUANTS, "dim": 256, "ffn_dim": 256} if layout == "K" else {"types": layout, "tied": False}
    model = load_model(write_tiny_family(tmp_path / "tiny.gguf", family, **fields))
    assert model.unused_tensors == ()
    executor = ReferenceExecutor(fuse(model.program), dequantized(model.source))
    logits = executor.forward(executor.new_state(), range(50, 90))["logits"]
    assert np.isfinite(logits).all()
    assert 0.5 < logits.std() < 20
    assert len(set(logits.argmax(axis=1).tolist())) > 10  # tests that decode such a model see many tokens
    model.source.close()
