"""Phi-1 to Phi-2 (Gunasekar et al. 2023). Owns their equations.

Attention and a plain feed-forward both read the layer's normed input; layer norms; RoPE of a part of each head; every
linear has a bias, the head's too.
"""

from collections.abc import Collection

from twostroke.models.blocks import attention, head, plain_ffn
from twostroke.models.config import ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.hf_family import STANDARD_TOP, Fields, HFFamily
from twostroke.program.builder import Builder


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Phi-2 model and name the outputs asked for."""
    x = b.embed("token_embd", config.vocab_size, config.dim)
    for layer in b.layers(config.num_layers):
        h = b.layer_norm(x, layer / "attn_norm", config.norm_eps)
        x = b.add(b.add(x, attention(b, h, layer, config)), plain_ffn(b, h, layer, config))
    head(b, x, config, outputs, layer_norm=True)


def _complete(facts: Facts, config: ModelConfig) -> Fields:
    return {
        "norm_eps": facts.number("layer_norm_eps", 1.0, 1e-5),
        **dict.fromkeys(("qkv_bias", "attn_output_bias", "ffn_bias", "head_bias"), True),
    }


PHI2 = HFFamily(
    "phi2",
    unsaid={"hidden_act": "gelu_new", "partial_rotary_factor": 0.5},
    complete=_complete,
    names={"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
    top={**STANDARD_TOP, "output_norm": "final_layernorm"},
)
