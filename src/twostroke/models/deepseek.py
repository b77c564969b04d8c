"""The DeepSeek families (DeepSeek-AI 2024): V2, and V3 with R1, whose equations Kimi K2 and GLM-4.7-Flash share. Owns
their equations.

Latent attention, queries through a latent of their own but in V2-Lite; mixtures of many small experts beside a shared
one, after a few dense layers. V2 chooses by softmax, V3 by sigmoid with a bias of the choice; both within groups.
"""

import math
from collections.abc import Collection, Mapping

from twostroke.models.blocks import experts, gated_ffn, head, shared_expert
from twostroke.models.config import MAX_DIM, MAX_EXPERTS, LatentSizes, ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.hf_family import Fields, HFFamily, first_dense, groups, mixture, rows
from twostroke.models.part import Part
from twostroke.program.builder import Builder, Layer
from twostroke.program.experts import Routing
from twostroke.program.values import Value


def deepseek2(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a DeepSeek V2 model and name the outputs asked for."""
    _build(b, config, outputs, "softmax_topk")


def deepseek3(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a DeepSeek V3 model and name the outputs asked for."""
    _build(b, config, outputs, "sigmoid_topk")


def _build(b: Builder, config: ModelConfig, outputs: Collection[str], routing: Routing) -> None:
    x, eps = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps
    for layer in b.layers(config.num_layers):
        x = b.add(x, latent_attention(b, b.rms_norm(x, layer / "attn_norm", eps), layer, config))
        h = b.rms_norm(x, layer / "ffn_norm", eps)
        if not config.has_experts(layer):
            x = b.add(x, gated_ffn(b, h, layer, config))
            continue
        mixed = experts(b, h, layer, config, routing, choice_bias=routing == "sigmoid_topk")
        x = b.add(x, b.add(mixed, shared_expert(b, h, layer, config)) if config.shared_ffn_dim else mixed)
    head(b, x, config, outputs)


def latent_attention(b: Builder, h: Value, layer: Layer, config: ModelConfig) -> Value:
    """Self-attention of normed rows: queries, the latent and the shared rotated key, attention, output projection."""
    sizes, rope = config.latent, config.rope(layer)
    if sizes is None or rope is None:
        raise ValueError("a model of this family has sizes of latent attention and rotation")
    q, q_dim = h, config.num_heads * (sizes.content_dim + sizes.rope_dim)
    if sizes.query_rank is not None:
        q = b.linear(h, layer / "attn_q_a", sizes.query_rank, bias=config.qkv_bias)
        q = b.rms_norm(q, layer / "attn_q_a_norm", _LATENT_EPS)
    q = b.linear(q, layer / ("attn_q" if sizes.query_rank is None else "attn_q_b"), q_dim)
    latent = b.linear(h, layer / "attn_kv_a", sizes.rank, bias=config.qkv_bias)
    latent = b.rms_norm(latent, layer / "attn_kv_a_norm", _LATENT_EPS)
    k_rope = b.linear(h, layer / "attn_k_rope", sizes.rope_dim, bias=config.qkv_bias)
    scale = config.attention_scale or (sizes.content_dim + sizes.rope_dim) ** -0.5
    attended = b.latent_attention(
        (q, latent, k_rope),
        layer / "attn_kv_b",
        num_heads=config.num_heads,
        value_dim=sizes.value_dim,
        rope=rope,
        scale=scale,
    )
    return b.linear(attended, layer / "attn_output", config.dim, bias=config.attn_output_bias)


_LATENT_EPS = 1e-6  # of the norms of latents, whatever the configuration says of others


def _complete(facts: Facts, config: ModelConfig) -> Fields:
    content, rope_dim = (facts.integer(f"qk_{part}_head_dim", MAX_DIM) for part in ("nope", "rope"))
    if rope_dim % 2:
        raise facts.error("qk_rope_head_dim", f"is {rope_dim}, which is odd")
    query_rank = facts.count("q_lora_rank", MAX_DIM) or None
    rank, value_dim = facts.integer("kv_lora_rank", MAX_DIM), facts.integer("v_head_dim", MAX_DIM)
    facts.require_only("moe_layer_freq", 1)
    facts.require_only("rope_interleave", True)
    width = facts.integer("moe_intermediate_size", MAX_DIM)
    shared = width * facts.count("n_shared_experts", MAX_EXPERTS)
    fields = mixture(facts, "n_routed_experts", shared=shared, dense=first_dense(facts))
    return fields | {
        "latent": LatentSizes(query_rank, rank, content, rope_dim, value_dim),
        "head_dim": content + rope_dim,
        "num_kv_heads": config.num_heads,
        "rope_dim": rope_dim,
        "rope_pairing": "interleaved",
        "attention_scale": (content + rope_dim) ** -0.5 * _magnitude(facts) ** 2,
        **groups(facts, fields["num_experts"], fields["experts_per_token"]),
    }


def _magnitude(facts: Facts) -> float:
    """What YaRN multiplies queries and keys by, beside what RoPE does."""
    rope = facts.part("rope_parameters") or facts.part("rope_scaling")
    if rope is None or rope.text("rope_type", rope.text("type", "default")) == "default":
        return 1.0
    factor, share = rope.number("factor", 1e6, 1.0), rope.optional_number("mscale_all_dim", 1e6)
    return 1.0 if share is None or factor <= 1 else 0.1 * share * math.log(factor) + 1


def _complete_v2(facts: Facts, config: ModelConfig) -> Fields:
    method = facts.text("topk_method", "greedy")
    facts.require_only("topk_method", "greedy", "group_limited_greedy")
    facts.require_only("scoring_func", "softmax")
    fields = _complete(facts, config)
    return fields if method == "group_limited_greedy" else fields | {"expert_groups": 1, "top_expert_groups": 1}


def _complete_v3(facts: Facts, config: ModelConfig) -> Fields:
    facts.require_only("topk_method", "noaux_tc")
    facts.require_only("scoring_func", "sigmoid")
    return _complete(facts, config)


def _complete_glm(facts: Facts, config: ModelConfig) -> Fields:
    kinds = facts.sequence("mlp_layer_types", config.num_layers)
    fields = _complete(facts, config)
    if kinds is None:
        return fields
    return fields | {"dense_layers": frozenset(layer for layer, kind in enumerate(kinds) if kind == "dense")}


def _parts(config: ModelConfig, layer: int) -> Mapping[str, Part]:
    """The latent and the rotated key come from one matrix."""
    if config.latent is None:
        return {}
    rank, rope_dim, parts = config.latent.rank, config.latent.rope_dim, {}
    for kind in ("weight", "bias") if config.qkv_bias else ("weight",):
        tensor, tail = f"blk.{layer}.attn_kv_a_mqa.{kind}", (config.dim,) if kind == "weight" else ()
        parts[f"blk.{layer}.attn_kv_a.{kind}"] = rows(tensor, (rank, *tail), 0, rank + rope_dim)
        parts[f"blk.{layer}.attn_k_rope.{kind}"] = rows(tensor, (rope_dim, *tail), rank, rank + rope_dim)
    return parts


_NAMES = {
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "exp_probs_b": "mlp.gate.e_score_correction*",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}
SHARED_NAMES = {name: raw for name, raw in _NAMES.items() if not name.startswith("attn")}
_UNSAID = {"rms_norm_eps": 1e-6, "head_dim": 64}
V2 = HFFamily("deepseek2", unsaid=_UNSAID, complete=_complete_v2, names=_NAMES, parts=_parts)
V3 = HFFamily(
    "deepseek3", unsaid={**_UNSAID, "norm_topk_prob": True}, complete=_complete_v3, names=_NAMES, parts=_parts
)
GLM_LITE = HFFamily(
    "deepseek3",
    unsaid={"head_dim": 64, "norm_topk_prob": True, "first_k_dense_replace": 1, "routed_scaling_factor": 1.8},
    complete=_complete_glm,
    names=_NAMES,
    parts=_parts,
)
