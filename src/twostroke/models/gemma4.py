"""Gemma 4 (Google 2026), its text models. Owns their equations.

Norms before and after attention and feed-forward, of plain weights; queries, keys and values normalised head by head,
scores not scaled. Layers without a window have larger heads and fewer of them, rotate a quarter of each, and may take
keys as values. A mixture runs beside the dense feed-forward; each layer's output is scaled by a weight. The models for
small devices give each layer an embedding of its own, and their last layers read the keys and values of earlier ones.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from twostroke.models.blocks import gated_ffn, head
from twostroke.models.config import MAX_CONTEXT, MAX_DIM, MAX_EXPERTS, FullSizes, ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.hf_family import STANDARD_TOP, Fields, HFFamily
from twostroke.models.part import Part
from twostroke.models.rope_scaling import read_base
from twostroke.program.builder import Builder, Layer
from twostroke.program.values import CacheSpec, RopeSpec, Value, Weight


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Gemma 4 text model and name the outputs asked for."""
    eps = config.norm_eps
    x = b.scale(b.embed("token_embd", config.vocab_size, config.dim), config.embedding_scale)
    own = _layer_inputs(b, x, config) if config.layer_input_dim else None
    for layer in b.layers(config.num_layers):
        attended = _attention(b, b.rms_norm(x, layer / "attn_norm", eps), layer, config)
        x = b.add(x, b.rms_norm(attended, layer / "post_attention_norm", eps))
        mixed = gated_ffn(b, b.rms_norm(x, layer / "ffn_norm", eps), layer, _ffn(config, layer), activation="gelu_tanh")
        if config.num_experts:
            mixed = b.add(b.rms_norm(mixed, layer / "post_ffw_norm_1", eps), _experts(b, x, layer, config))
        x = b.add(x, b.rms_norm(mixed, layer / "post_ffw_norm", eps))
        if own is not None:
            x = b.add(x, _own_input(b, x, own, layer, config))
        x = b.scale_by_weight(x, layer / "layer_output_scale")
    head(b, x, config, outputs)


def _layer_inputs(b: Builder, x: Value, config: ModelConfig) -> Value:
    """Of all layers: the mean of what the token's row in a second table and a linear of its embedding give, times
    the square root of 2."""
    size = config.layer_input_dim
    looked_up = b.scale(b.embed("per_layer_token_embd", config.vocab_size, config.num_layers * size), size**0.5)
    given = b.scale(b.linear(x, "per_layer_model_proj", config.num_layers * size), config.dim**-0.5)
    given = b.rms_norm(given, "per_layer_proj_norm", config.norm_eps, group_dim=size)
    return b.scale(b.add(given, looked_up), 2**-0.5)


def _own_input(b: Builder, x: Value, own: Value, layer: Layer, config: ModelConfig) -> Value:
    size = config.layer_input_dim
    gate = b.linear(x, layer / "inp_gate", size)
    gated = b.gated(gate, b.columns(own, layer.index * size, size), "gelu_tanh")
    return b.rms_norm(b.linear(gated, layer / "proj", config.dim), layer / "post_norm", config.norm_eps)


def _ffn(config: ModelConfig, layer: Layer) -> ModelConfig:
    """With the size of this layer's feed-forward."""
    wide = config.wide_ffn_dim and layer.index >= config.num_layers - config.kv_sharing_layers
    return replace(config, ffn_dim=config.wide_ffn_dim) if wide else config


def _kv_layer(config: ModelConfig, layer: Layer) -> Layer:
    """The layer whose keys and values this one reads, itself as a rule."""
    first, window = config.num_layers - config.kv_sharing_layers, config.window(layer)
    if layer.index < first:
        return layer
    return next(found for found in map(Layer, reversed(range(first))) if config.window(found) == window)


def _attention(b: Builder, h: Value, layer: Layer, config: ModelConfig) -> Value:
    full = config.full if config.window(layer) is None else None
    size, eps, bias = full.head_dim if full else config.head_dim, config.norm_eps, config.qkv_bias
    heads = full.num_kv_heads if full else config.num_kv_heads
    q = b.linear(h, layer / "attn_q", config.num_heads * size, bias=bias)
    q = b.rope(b.rms_norm(q, layer / "attn_q_norm", eps, group_dim=size), size, _rope(config, full))
    source = _kv_layer(config, layer)
    k = v = None
    if source == layer:
        k, v = _keys_and_values(b, h, layer, config, full)
    attended = b.attention(q, k, v, CacheSpec(source / "attention", heads, size, config.window(layer)), scale=1.0)
    return b.linear(attended, layer / "attn_output", config.dim, bias=config.attn_output_bias)


def _keys_and_values(
    b: Builder, h: Value, layer: Layer, config: ModelConfig, full: FullSizes | None
) -> tuple[Value, Value]:
    size, heads = (full.head_dim, full.num_kv_heads) if full else (config.head_dim, config.num_kv_heads)
    eps, bias = config.norm_eps, config.qkv_bias
    k = v = b.linear(h, layer / "attn_k", heads * size, bias=bias)
    if full is None or not full.keys_are_values:
        v = b.linear(h, layer / "attn_v", heads * size, bias=bias)
    k = b.rope(b.rms_norm(k, layer / "attn_k_norm", eps, group_dim=size), size, _rope(config, full))
    return k, b.unit_norm(v, eps, group_dim=size)


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
        "layer_input_dim": _layer_input_dim(facts, config),
        **_sharing(facts, config, windows),
        **_rotation(facts),
        **_mixture(facts),
    }


def _layer_input_dim(facts: Facts, config: ModelConfig) -> int:
    size = facts.count("hidden_size_per_layer_input", MAX_DIM)
    if size:
        facts.require_only("vocab_size_per_layer_input", config.vocab_size)
    return size


def _sharing(facts: Facts, config: ModelConfig, windows: Sequence[int | None]) -> Fields:
    shared = facts.count("num_kv_shared_layers", config.num_layers)
    first = config.num_layers - shared
    if not set(windows[first:]) <= set(windows[:first]):
        raise facts.error("num_kv_shared_layers", f"is {shared}, of which some have no layer before them of their kind")
    wide = facts.boolean("use_double_wide_mlp", False) and shared > 0
    return {"kv_sharing_layers": shared, "wide_ffn_dim": 2 * config.ffn_dim if wide else 0}


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
        "inp_gate": "per_layer_input_gate",
        "proj": "per_layer_projection",
        "post_norm": "post_per_layer_input_norm",
    },
    top={
        **STANDARD_TOP,
        "per_layer_token_embd": "embed_tokens_per_layer",
        "per_layer_model_proj": "per_layer_model_projection",
        "per_layer_proj_norm": "per_layer_projection_norm",
    },
    spare=("self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.k_norm.weight"),
    parts=_parts,
    separate_experts=False,
)
