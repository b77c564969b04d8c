"""Ministral 3 (Mistral AI 2025). Owns its equations: Llama's, with queries that grow with their position.

Mistral models before it have Llama's equations.
"""

from collections.abc import Collection

from twostroke.models.blocks import gated_ffn, head
from twostroke.models.config import MAX_CONTEXT, ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.hf_family import Fields, HFFamily
from twostroke.program.builder import Builder, Layer
from twostroke.program.values import Value


def ministral3(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Ministral 3 model and name the outputs asked for."""
    x, eps = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps
    for layer in b.layers(config.num_layers):
        x = b.add(x, _attention(b, b.rms_norm(x, layer / "attn_norm", eps), layer, config))
        x = b.add(x, gated_ffn(b, b.rms_norm(x, layer / "ffn_norm", eps), layer, config))
    head(b, x, config, outputs)


def _attention(b: Builder, h: Value, layer: Layer, config: ModelConfig) -> Value:
    q = b.linear(h, layer / "attn_q", config.q_dim)
    k, v = (b.linear(h, layer / f"attn_{name}", config.kv_dim) for name in "kv")
    rope = config.rope(layer)
    if rope is not None:
        q, k = b.rope(q, config.head_dim, rope), b.rope(k, config.head_dim, rope)
    if config.position_scale is not None:
        q = b.scale_by_position(q, *config.position_scale, first=0)
    return b.linear(b.attention(q, k, v, config.cache(layer)), layer / "attn_output", config.dim)


def _complete(facts: Facts, config: ModelConfig) -> Fields:
    rope = facts.part("rope_parameters")
    strength = None if rope is None else rope.optional_number("llama_4_scaling_beta", 1e6)
    if rope is None or strength is None:
        return {}
    return {"position_scale": (rope.integer("original_max_position_embeddings", MAX_CONTEXT), strength)}


MINISTRAL3 = HFFamily("mistral3", unsaid={"head_dim": 128}, complete=_complete)
