"""GPT-2 (Radford et al. 2019). Owns its equations: learned positions, layer norms, a plain feed-forward, biases.

Its checkpoints store every matrix with inputs as rows, and q, k and v as one.
"""

from collections.abc import Collection, Mapping

from twostroke.models.blocks import attention, head, plain_ffn
from twostroke.models.config import ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.hf_family import Fields, HFFamily, rows
from twostroke.models.part import Part
from twostroke.program.builder import Builder


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a GPT-2 model and name the outputs asked for."""
    x, eps = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps
    x = b.add_position(x, "position_embd", config.context_length)
    for layer in b.layers(config.num_layers):
        x = b.add(x, attention(b, b.layer_norm(x, layer / "attn_norm", eps), layer, config))
        x = b.add(x, plain_ffn(b, b.layer_norm(x, layer / "ffn_norm", eps), layer, config))
    head(b, x, config, outputs, layer_norm=True)


def _complete(facts: Facts, config: ModelConfig) -> Fields:
    facts.require_only("scale_attn_weights", True)
    facts.require_only("scale_attn_by_inverse_layer_idx", False)
    return {
        "norm_eps": facts.number("layer_norm_epsilon", 1.0, 1e-5),
        "unrotated_layers": frozenset(range(config.num_layers)),
        **dict.fromkeys(("qkv_bias", "attn_output_bias", "ffn_bias"), True),
    }


def _parts(config: ModelConfig, layer: int) -> Mapping[str, Part]:
    prefix, dim, parts = f"blk.{layer}.", config.dim, {}
    for place, name in enumerate("qkv"):
        first, total = place * dim, 3 * dim
        matrix = Part(f"{prefix}attn_qkv.weight", (dim, dim), (total,), (slice(first, first + dim),), transposed=True)
        parts[f"{prefix}attn_{name}.weight"] = matrix
        parts[f"{prefix}attn_{name}.bias"] = rows(f"{prefix}attn_qkv.bias", (dim,), first, total)
    shapes = {"attn_output": (dim, dim), "ffn_up": (config.ffn_dim, dim), "ffn_down": (dim, config.ffn_dim)}
    for name, shape in shapes.items():
        parts[f"{prefix}{name}.weight"] = Part(f"{prefix}{name}.weight", shape, shape[:1], transposed=True)
    return parts


GPT2 = HFFamily(
    "gpt2",
    unsaid={"tie_word_embeddings": True, "activation_function": "gelu_new"},
    renamed={
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_inner": "intermediate_size",
        "n_positions": "max_position_embeddings",
        "activation_function": "hidden_act",
    },
    complete=_complete,
    names={
        "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn",
        "attn_output": "attn.c_proj",
        "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc",
        "ffn_down": "mlp.c_proj",
    },
    top={
        "token_embd": "wte",
        "position_embd": "wpe",
        "output_norm": "ln_f",
    },
    layers="h.",
    roots=(("transformer.", "lm_head"), ("", "lm_head")),
    parts=_parts,
)
