"""Gemma 4 (Google 2026), its text models without embeddings of each layer. Owns their equations.

Norms before and after attention and feed-forward, of plain weights; queries, keys and values normalised head by head,
scores not scaled. Layers without a window have larger heads and fewer of them, rotate a quarter of each, and may take
keys as values. A mixture runs beside the dense feed-forward; each layer's output is scaled by a weight.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from twostroke.models.blocks import gated_ffn, head
from twostroke.models.config import MAX_CONTEXT, MAX_DIM, MAX_EXPERTS, FullSizes, ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.hf_family import Fields, HFFamily
from twostroke.models.part import Part
from twostroke.models.rope_scaling import read_base
from twostroke.program.builder import Builder, Layer
from twostroke.program.values import CacheSpec, RopeSpec, Value, Weight


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Gemma 4 text model and name the outputs asked for."""
    eps = config.norm_eps
    x = b.scale(b.embed("token_embd", config.vocab_size, config.dim), config.embedding_scale)
    for layer in b.layers(config.num_layers):
        attended = _attention(b, b.rms_norm(x, layer / "attn_norm", eps), layer, config)
        x = b.add(x, b.rms_norm(attended, layer / "post_attention_norm", eps))
        mixed = gated_ffn(b, b.rms_norm(x, layer / "ffn_norm", eps), layer, config, activation="gelu_tanh")
        if config.num_experts:
            mixed = b.add(b.rms_norm(mixed, layer / "post_ffw_norm_1", eps), _experts(b, x, layer, config))
        x = b.add(x, b.rms_norm(mixed, layer / "post_ffw_norm", eps))
        x = b.scale_by_weight(x, layer / "layer_output_scale")
    head(b, x, config, outputs)


def _attention(b: Builder, h: Value, layer: Layer, config: ModelConfig) -> Value:
    full = config.full if config.window(layer) is None else None
    size, eps, bias = full.head_dim if full else config.head_dim, config.norm_eps, config.qkv_bias
    heads = full.num_kv_heads if full else config.num_kv_heads
    q = b.linear(h, layer / "attn_q", config.num_heads * size, bias=bias)
    q = b.rope(b.rms_norm(q, layer / "attn_q_norm", eps, group_dim=size), size, _rope(config, full))
    k = v = b.linear(h, layer / "attn_k", heads * size, bias=bias)
    if full is None or not full.keys_are_values:
        v = b.linear(h, layer / "attn_v", heads * size, bias=bias)
    k = b.rope(b.rms_norm(k, layer / "attn_k_norm", eps, group_dim=size), size, _rope(config, full))
    v = b.unit_norm(v, eps, group_dim=size)
    attended = b.attention(q, k, v, CacheSpec(layer / "attention", heads, size, config.window(layer)), scale=1.0)
    return b.linear(attended, layer / "attn_output", config.dim, bias=config.attn_output_bias)


def _rope(config: ModelConfig, full: FullSizes | None) -> RopeSpec:
    """Of a larger head, pairs span the whole and those beyond the rotated part do not turn."""
    if full is None:
        return RopeSpec(config.head_dim, config.local_rope_base or config.rope_base, "half")
    turned = full.rope_dim // 2
    divisors = (1.0,) * turned + (math.inf,) * (full.head_dim // 2 - turned)
    return RopeSpec(full.head_dim, config.rope_base, "half", divisors)


def _experts(b: Builder, x: Value, layer: Layer, config: ModelConfig) -> Value:
    routed = config.routed("softmax_topk")
    routed = replace(routed, expert_scales=Weight(layer / "ffn_exps_scale.weight", (config.num_experts,)))
    choosing = b.rms_norm(x, layer / "ffn_gate_inp_norm", config.norm_eps)
    router = b.scale(b.linear(choosing, layer / "ffn_gate_inp", config.num_experts), config.dim**-0.5)
    h = b.rms_norm(x, layer / "pre_ffw_norm_2", config.norm_eps)
    mixed = b.experts(h, router, layer / "ffn", config.expert_ffn_dim, routed, activation="gelu_tanh")
    return b.rms_norm(mixed, layer / "post_ffw_norm_2", config.norm_eps)


def _complete(facts: Facts, config: ModelConfig) -> Fields:
    if facts.count("hidden_size_per_layer_input", MAX_DIM):
        raise facts.unsupported("hidden_size_per_layer_input", "is not 0: embeddings of each layer are not supported")
    facts.require_only("use_double_wide_mlp", False)
    facts.require_only("num_kv_shared_layers", 0)
    facts.require_only(_BOTH_WAYS, False, "vision")
    types = facts.sequence("layer_types", config.num_layers)
    if types is None:
        types = ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(config.num_layers)]
    window = facts.integer("sliding_window", MAX_CONTEXT)
    windows = tuple(window if each == "sliding_attention" else None for each in types)
    return {
        "windows": windows,
        "full": _full(facts, config, [layer for layer, each in enumerate(windows) if each is None]),
        "embedding_scale": config.dim**0.5,
        "logit_soft_cap": facts.optional_number("final_logit_softcapping", 1e6),
        "activation": "gelu_tanh",
        **_rotation(facts),
        **_mixture(facts),
    }


def _full(facts: Facts, config: ModelConfig, layers: list[int]) -> FullSizes:
    """Sizes of the layers without a window, from the keys of their own or from an object for each of them."""
    keys_are_values = facts.boolean("attention_k_eq_v", False)
    size, heads = facts.integer("global_head_dim", MAX_DIM, 512), config.num_kv_heads
    if keys_are_values:
        heads = facts.integer("num_global_key_value_heads", config.num_heads, heads)
    each = facts.part("per_layer_config")
    if each is not None and layers:
        own = each.part(str(layers[0]))
        if own is None or any(each.raw(str(layer)) != own.values for layer in layers):
            raise facts.unsupported("per_layer_config", "differs among full_attention layers, which is not supported")
        size = own.integer("head_dim", MAX_DIM)
        heads = own.integer("num_key_value_heads", config.num_heads, config.num_kv_heads)
    rope = facts.part(_ROPE)
    full = None if rope is None else rope.part("full_attention")
    share = 0.25 if full is None else full.number("partial_rotary_factor", 1.0, 1.0)
    if config.num_heads % heads or size % 2:
        raise facts.error("num_global_key_value_heads", f"is {heads} of {config.num_heads} heads of {size} elements")
    return FullSizes(heads, size, 2 * int(share * size // 2), keys_are_values)


def _rotation(facts: Facts) -> Fields:
    rope = facts.part(_ROPE)
    full, local = (None if rope is None else rope.part(f"{kind}_attention") for kind in ("full", "sliding"))
    if full is not None:
        full.require_only("rope_type", "proportional", "default")
        full.require_only("factor", 1.0)
    return {
        "rope_base": 1e6 if full is None else read_base(full, "rope_theta", 1e6),
        "local_rope_base": 1e4 if local is None else read_base(local, "rope_theta", 1e4),
        "rope_scaling": None,
        "rope_dim": facts.integer("head_dim", MAX_DIM),
    }


def _mixture(facts: Facts) -> Fields:
    if not facts.boolean("enable_moe_block", False):
        return {}
    count = facts.integer("num_experts", MAX_EXPERTS)
    return {
        "num_experts": count,
        "experts_per_token": facts.integer("top_k_experts", count),
        "expert_ffn_dim": facts.integer("moe_intermediate_size", MAX_DIM),
        "renormalize_experts": True,
    }


def _parts(config: ModelConfig, layer: int) -> Mapping[str, Part]:
    """All experts' gate and up in one tensor."""
    prefix, count, width = f"blk.{layer}.ffn_", config.num_experts, config.expert_ffn_dim
    if not count:
        return {}
    tensor, shape = f"{prefix}gate_up_exps.weight", (count, width, config.dim)
    return {
        f"{prefix}{name}_exps.weight": Part(tensor, shape, (count, 2, width), (slice(None), place))
        for place, name in enumerate(("gate", "up"))
    }


# Keys that the usual reading takes otherwise.
_ROPE, _BOTH_WAYS = "rope_parameters by layer type", "use_bidirectional_attention of text"
GEMMA4 = HFFamily(
    "gemma4",
    renamed={"rope_parameters": _ROPE, "use_bidirectional_attention": _BOTH_WAYS, "hidden_activation": "hidden_act"},
    unsaid={
        "head_dim": 256,
        "tie_word_embeddings": True,
        "sliding_window": 512,
        "hidden_act": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "hidden_size_per_layer_input": 256,
    },
    complete=_complete,
    names={
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
        "post_ffw_norm_1": "post_feedforward_layernorm_1",
        "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
        "post_ffw_norm_2": "post_feedforward_layernorm_2",
        "layer_output_scale": "layer_scalar*",
        "ffn_gate_inp": "router.proj",
        "ffn_exps_scale": "router.per_expert_scale*",
        "ffn_gate_up_exps": "experts.gate_up_proj*",
        "ffn_down_exps": "experts.down_proj*",
        "ffn_gate_inp_norm": "router.scale*",
    },
    parts=_parts,
    separate_experts=False,
)
