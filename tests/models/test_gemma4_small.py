"""Gemma 4's models for small devices against their equations written out: embeddings of each layer, keys and values of
earlier layers, wider feed-forwards."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.program.samples import random_weights

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.hf_config import config_from_hf
from twostroke.models.load import dequantized, load_model
from twostroke.models.registry import build_program
from twostroke.native.refusals import refuse_unsupported
from twostroke.program.passes import fuse
from twostroke.program.reference import ReferenceExecutor

SLIDING, FULL = "sliding_attention", "full_attention"
KINDS = [SLIDING, FULL, SLIDING, FULL, SLIDING]
SOURCES = [0, 1, 2, 1, 2]  # the layer whose keys and values each reads
LAYERS, DIM, OWN, HEADS, WINDOW, FFN = len(KINDS), 8, 4, 2, 3, 12
SIZES = {SLIDING: 4, FULL: 8}
FACTS = {
    "model_type": "gemma4_text",
    "hidden_size": DIM,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 1,
    "head_dim": SIZES[SLIDING],
    "global_head_dim": SIZES[FULL],
    "intermediate_size": FFN,
    "vocab_size": 40,
    "vocab_size_per_layer_input": 40,
    "hidden_size_per_layer_input": OWN,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "layer_types": KINDS,
    "sliding_window": WINDOW,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "rope_parameters": {
        FULL: {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    },
}
IDS = np.array([3, 17, 39, 3, 8, 21])


class Equations:
    """As the published model has them, row by row of all tokens at once."""

    def __init__(self, weights: object) -> None:
        self.weights = weights
        self.kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def weight(self, name: str) -> np.ndarray:
        return self.weights(f"{name}.weight")  # type: ignore[operator]

    def norm(self, x: np.ndarray, name: str | None = None) -> np.ndarray:
        scaled = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        return scaled if name is None else scaled * self.weight(name)

    def heads(self, x: np.ndarray, name: str, size: int) -> np.ndarray:
        return (x @ self.weight(name).T).reshape(len(x), -1, size)

    def rotated(self, x: np.ndarray, kind: str) -> np.ndarray:
        size = SIZES[kind]
        pairs = np.arange(size // 2)
        turning = pairs < (size // 2 if kind == SLIDING else size // 8)
        speed = np.where(turning, (1e4 if kind == SLIDING else 1e6) ** (-2 * pairs / size), 0)
        angle = np.arange(len(x))[:, None, None] * speed
        first, second = x[..., : size // 2], x[..., size // 2 :]
        turned = first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle)
        return np.concatenate(turned, -1)

    def attention(self, x: np.ndarray, layer: int) -> np.ndarray:
        prefix, kind = f"blk.{layer}.attn_", KINDS[layer]
        q = self.rotated(self.norm(self.heads(x, f"{prefix}q", SIZES[kind]), f"{prefix}q_norm"), kind)
        if SOURCES[layer] == layer:
            k = self.rotated(self.norm(self.heads(x, f"{prefix}k", SIZES[kind]), f"{prefix}k_norm"), kind)
            self.kept[layer] = k[:, 0], self.norm(self.heads(x, f"{prefix}v", SIZES[kind]))[:, 0]
        keys, values = self.kept[SOURCES[layer]]
        out = np.zeros_like(q)
        for row in range(len(x)):
            first = max(0, row - WINDOW + 1) if kind == SLIDING else 0
            shares = np.exp(q[row] @ keys[first : row + 1].T)
            out[row] = shares / shares.sum(-1, keepdims=True) @ values[first : row + 1]
        return out.reshape(len(x), -1) @ self.weight(f"{prefix}output").T

    def logits(self, ids: np.ndarray) -> np.ndarray:
        embedding = self.weight("token_embd")
        x = embedding[ids] * DIM**0.5
        given = (x @ self.weight("per_layer_model_proj").T * DIM**-0.5).reshape(len(ids), LAYERS, OWN)
        looked_up = self.weight("per_layer_token_embd")[ids].reshape(len(ids), LAYERS, OWN) * OWN**0.5
        own = (self.norm(given, "per_layer_proj_norm") + looked_up) / 2**0.5
        for layer in range(LAYERS):
            p = f"blk.{layer}."
            x = x + self.norm(self.attention(self.norm(x, f"{p}attn_norm"), layer), f"{p}post_attention_norm")
            h = self.norm(x, f"{p}ffn_norm")
            h = gelu(h @ self.weight(f"{p}ffn_gate").T) * (h @ self.weight(f"{p}ffn_up").T)
            x = x + self.norm(h @ self.weight(f"{p}ffn_down").T, f"{p}post_ffw_norm")
            h = gelu(x @ self.weight(f"{p}inp_gate").T) * own[:, layer]
            x = x + self.norm(h @ self.weight(f"{p}proj").T, f"{p}post_norm")
            x = x * self.weight(f"{p}layer_output_scale")
        return self.norm(x, "output_norm") @ embedding.T


def gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("cut", [6, 2])
def test_as_its_equations(cut: int) -> None:
    program = build_program(config_from_hf(FACTS))
    weights = random_weights(program)
    expected = Equations(weights).logits(IDS)[-1:]
    for each in (program, fuse(program)):
        executor = ReferenceExecutor(each, weights, np.float64)
        state = executor.new_state()
        for start in range(0, len(IDS), cut):
            found = executor.forward(state, IDS[start : start + cut])["logits"]
        np.testing.assert_allclose(found[-1:], expected, rtol=1e-8)


RAW = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
    **{f"attn_{name}_norm": f"self_attn.{name}_norm" for name in "qk"},
    **{f"attn_{name}": f"self_attn.{raw}_proj" for name, raw in zip(("q", "k", "v", "output"), "qkvo", strict=True)},
    **{f"ffn_{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")},
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "per_layer_token_embd": "embed_tokens_per_layer",
    "per_layer_model_proj": "per_layer_model_projection",
    "per_layer_proj_norm": "per_layer_projection_norm",
}


def test_a_checkpoint_may_hold_keys_that_are_shared(tmp_path: Path) -> None:
    weights = random_weights(program := build_program(config_from_hf(FACTS)))
    tensors = {}
    for name in program.weights:
        *layer, part, _ = name.split(".")
        prefix = f"model.layers.{layer[1]}." if layer else "model."
        raw = "layer_scalar" if part == "layer_output_scale" else f"{RAW[part]}.weight"
        tensors[prefix + raw] = weights(name).astype(np.float32)
    spare = {
        f"model.layers.{layer}.self_attn.k_norm.weight": np.ones(SIZES[KINDS[layer]], np.float32) for layer in (3, 4)
    }
    save_file({**tensors, **spare}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(FACTS))
    model = load_model(tmp_path)
    assert set(model.unused_tensors) == set(spare)
    executor = ReferenceExecutor(model.program, dequantized(model.source), np.float64)
    found = executor.forward(executor.new_state(), IDS)["logits"]
    np.testing.assert_allclose(found[-1:], Equations(weights).logits(IDS)[-1:], rtol=1e-4, atol=1e-6)
    model.source.close()


def test_layers_that_share_have_wider_feed_forwards_and_no_keys() -> None:
    weights = build_program(config_from_hf(FACTS)).weights
    assert [weights[f"blk.{layer}.ffn_up.weight"].shape[0] for layer in range(LAYERS)] == [12, 12, 12, 24, 24]
    assert [f"blk.{layer}.attn_k.weight" in weights for layer in range(LAYERS)] == [True, True, True, False, False]
    assert len(build_program(config_from_hf(FACTS)).caches) == 3


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ModelFileError, match="'num_kv_shared_layers' is 4, of which some have no layer before them"):
        config_from_hf({**FACTS, "num_kv_shared_layers": 4})
    with pytest.raises(UnsupportedModelError, match="'vocab_size_per_layer_input' is 41"):
        config_from_hf({**FACTS, "vocab_size_per_layer_input": 41})
    with pytest.raises(UnsupportedModelError, match=r"inputs of each layer.s own, .*keys of another layer"):
        refuse_unsupported(build_program(config_from_hf(FACTS)))
