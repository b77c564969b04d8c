"""BERT and RoBERTa against their equations written out, from a configuration alone; what of them is refused."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.program.samples import random_weights

from twostroke import LLM
from twostroke.errors import UnsupportedModelError
from twostroke.models.hf_config import config_from_hf
from twostroke.models.registry import build_program
from twostroke.native.refusals import refuse_unsupported
from twostroke.program.passes import fuse
from twostroke.program.reference import ReferenceExecutor
from twostroke.roofline.planned_model import find_planned

FACTS = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "vocab_size": 40,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-5,
}
SIZES = {"word": 40, "position": 16, "token_type": 2}  # of its tables
IDS = np.array([3, 17, 39, 3, 8])


def facts(kind: str, **more: object) -> dict[str, object]:
    return {**FACTS, "model_type": kind, **more}


@pytest.mark.parametrize(("kind", "first"), [("bert", 0), ("roberta", 2), ("xlm-roberta", 2)])
def test_as_its_equations(kind: str, first: int) -> None:
    program = build_program(config_from_hf(facts(kind)))
    weights = random_weights(program)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(1, keepdims=True)
        scale = np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
        return centred / scale * weights(f"{name}.weight") + weights(f"{name}.bias")

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights(f"{name}.weight").T + weights(f"{name}.bias")

    positions = weights("position_embd.weight")[first : first + len(IDS)]
    x = norm(weights("token_embd.weight")[IDS] + positions + weights("token_types.weight")[0], "token_embd_norm")
    for layer in ("blk.0.", "blk.1."):
        q, k, v = (linear(x, f"{layer}attn_{name}") for name in "qkv")
        heads = []
        for head in (slice(0, 4), slice(4, 8)):
            scores = np.exp(q[:, head] @ k[:, head].T / 2)
            heads.append(scores / scores.sum(1, keepdims=True) @ v[:, head])
        x = norm(x + linear(np.hstack(heads), f"{layer}attn_output"), f"{layer}attn_output_norm")
        up = linear(x, f"{layer}ffn_up")
        up = up * (1 + np.vectorize(math.erf)(up / math.sqrt(2))) / 2
        x = norm(x + linear(up, f"{layer}ffn_down"), f"{layer}layer_output_norm")
    for each in (program, fuse(program)):
        executor = ReferenceExecutor(each, weights, np.float64)
        found = executor.forward(executor.new_state(), IDS)["hidden"]
        np.testing.assert_allclose(found, x if len(found) == len(IDS) else x[-1:], rtol=1e-9)


def test_the_context_ends_where_the_table_does() -> None:
    assert [config_from_hf(facts(kind)).context_length for kind in ("bert", "roberta")] == [16, 14]


@pytest.mark.parametrize("wrong", [{"position_embedding_type": "relative_key"}, {"is_decoder": True}])
def test_other_kinds_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UnsupportedModelError, match=next(iter(wrong))):
        config_from_hf(facts("bert", **wrong))


def test_an_encoder_has_no_logits_and_no_native_code() -> None:
    config = config_from_hf(facts("bert"))
    with pytest.raises(UnsupportedModelError, match="is an encoder: it gives no logits"):
        build_program(config, ("logits",))
    with pytest.raises(UnsupportedModelError, match="attention of an encoder"):
        refuse_unsupported(build_program(config))


@pytest.mark.parametrize(("kind", "root"), [("bert", ""), ("bert", "bert."), ("xlm-roberta", "roberta.")])
def test_a_directory_is_planned_in_its_own_types(tmp_path: Path, kind: str, root: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(facts(kind)))
    save_file(stored(root), tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModelError, match="attention of an encoder"):
        LLM(str(tmp_path), embed_only=True)
    found = find_planned(str(tmp_path))
    expected = sum(each.size * (2 if each.ndim == 2 else 4) for each in stored("").values())  # vectors run in float32
    assert (found.weights, found.weight_bytes) == ("f16", expected)


def stored(root: str) -> dict[str, np.ndarray]:
    """As `transformers` names the tensors of a model without a pooler, or of one with a head after it."""
    found = {
        **{f"embeddings.{name}_embeddings.weight": (size, 8) for name, size in SIZES.items()},
        **{f"embeddings.LayerNorm.{part}": (8,) for part in ("weight", "bias")},
    }
    for layer in range(2):
        prefix = f"encoder.layer.{layer}."
        shapes = {"intermediate.dense": (12, 8), "output.dense": (8, 12)}
        shapes |= {f"attention.{name}": (8, 8) for name in ("self.query", "self.key", "self.value", "output.dense")}
        for name, shape in shapes.items():
            found |= {f"{prefix}{name}.weight": shape, f"{prefix}{name}.bias": shape[:1]}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            found |= {f"{prefix}{name}.weight": (8,), f"{prefix}{name}.bias": (8,)}
    return {f"{root}{name}": np.zeros(shape, np.float16) for name, shape in found.items()}
