"""Llama 4 (Meta 2025), its text model. Owns its equations.

Layers that are rotated see a segment of the context and normalise queries and keys after rotation; every fourth is not
rotated, sees all and scales queries by position. Every layer or every second one is a mixture whose weights multiply
what experts read, beside a shared expert; the others are dense.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from twostroke.models.blocks import gated_ffn, head, shared_expert
from twostroke.models.config import MAX_CONTEXT, MAX_DIM, MAX_EXPERTS, MAX_LAYERS, ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.hf_family import Fields, HFFamily
from twostroke.models.part import Part
from twostroke.program.builder import Builder, Layer
from twostroke.program.values import Value


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Llama 4 text model and name the outputs asked for."""
    x, eps = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps
    for layer in b.layers(config.num_layers):
        x = b.add(x, _attention(b, b.rms_norm(x, layer / "attn_norm", eps), layer, config))
        h = b.rms_norm(x, layer / "ffn_norm", eps)
        feed_forward = _experts if config.has_experts(layer) else gated_ffn
        x = b.add(x, feed_forward(b, h, layer, config))
    head(b, x, config, outputs)


def _attention(b: Builder, h: Value, layer: Layer, config: ModelConfig) -> Value:
    size, rope, bias = config.head_dim, config.rope(layer), config.qkv_bias
    q = b.linear(h, layer / "attn_q", config.q_dim, bias=bias)
    k, v = (b.linear(h, layer / f"attn_{name}", config.kv_dim, bias=bias) for name in "kv")
    if rope is not None:
        q, k = b.rope(q, size, rope), b.rope(k, size, rope)
        if config.qk_norm:
            q, k = (b.unit_norm(x, config.norm_eps, group_dim=size) for x in (q, k))
    elif config.position_scale is not None:
        q = b.scale_by_position(q, *config.position_scale, shift=1)
    attended = b.attention(q, k, v, config.cache(layer))
    return b.linear(attended, layer / "attn_output", config.dim, bias=config.attn_output_bias)


def _experts(b: Builder, h: Value, layer: Layer, config: ModelConfig) -> Value:
    router = b.linear(h, layer / "ffn_gate_inp", config.num_experts)
    routed = replace(config.routed("sigmoid_topk"), weighs_input=True)
    mixed = b.experts(h, router, layer / "ffn", config.expert_ffn_dim, routed)
    return b.add(shared_expert(b, h, layer, config), mixed)


def _complete(facts: Facts, config: ModelConfig) -> Fields:
    num_layers, count = config.num_layers, facts.integer("num_local_experts", MAX_EXPERTS)
    rotated = facts.sequence("no_rope_layers", num_layers)  # by its name the opposite: 1 where a layer rotates
    interval = facts.integer("no_rope_layer_interval", MAX_LAYERS, 4)
    is_rotated = rotated or [(layer + 1) % interval for layer in range(num_layers)]
    is_scaled = facts.boolean("attn_temperature_tuning", True)
    width = facts.integer("intermediate_size", MAX_DIM)
    return {
        "rope_pairing": "interleaved",
        "unrotated_layers": frozenset(layer for layer, each in enumerate(is_rotated) if not each),
        "segment": facts.count("attention_chunk_size", MAX_CONTEXT) or None,
        "position_scale": (facts.integer("floor_scale", MAX_CONTEXT, 8192), facts.number("attn_scale", 1e6, 0.1))
        if is_scaled
        else None,
        "qk_norm": facts.boolean("use_qk_norm", True),
        "ffn_dim": facts.integer("intermediate_size_mlp", MAX_DIM),
        "num_experts": count,
        "experts_per_token": facts.integer("num_experts_per_tok", count, 1),
        "expert_ffn_dim": width,
        "shared_ffn_dim": width,
        "dense_layers": _dense(facts, num_layers),
    }


def _dense(facts: Facts, num_layers: int) -> frozenset[int]:
    if "moe_layers" in facts:
        listed = facts.raw("moe_layers")
        if not isinstance(listed, list) or not all(isinstance(layer, int) for layer in listed):
            raise facts.error("moe_layers", "is not a list of layers")
        return frozenset(range(num_layers)) - frozenset(listed)
    step = facts.integer("interleave_moe_layer_step", MAX_LAYERS, 1)
    return frozenset(layer for layer in range(num_layers) if (layer + 1) % step)


def _parts(config: ModelConfig, layer: int) -> Mapping[str, Part]:
    """All experts' gate and up in one tensor, with inputs as rows."""
    if layer in config.dense_layers:
        return {}
    prefix, count, width = f"blk.{layer}.ffn_", config.num_experts, config.expert_ffn_dim
    tensor, down = f"{prefix}gate_up_exps.weight", f"{prefix}down_exps.weight"
    parts = {
        f"{prefix}{name}_exps.weight": Part(
            tensor, (count, width, config.dim), (count, 2, width), (slice(None), place), transposed=True
        )
        for place, name in enumerate(("gate", "up"))
    }
    return parts | {down: Part(down, (count, config.dim, width), (count, config.dim), transposed=True)}


LLAMA4 = HFFamily(
    "llama4",
    unsaid={"head_dim": 128, "rope_theta": 500000.0, "intermediate_size_mlp": 16384, "attention_chunk_size": 8192},
    complete=_complete,
    names={
        "ffn_gate": "feed_forward.gate_proj",
        "ffn_up": "feed_forward.up_proj",
        "ffn_down": "feed_forward.down_proj",
        "ffn_gate_inp": "feed_forward.router",
        "ffn_gate_up_exps": "feed_forward.experts.gate_up_proj*",
        "ffn_down_exps": "feed_forward.experts.down_proj*",
        "ffn_gate_shexp": "feed_forward.shared_expert.gate_proj",
        "ffn_up_shexp": "feed_forward.shared_expert.up_proj",
        "ffn_down_shexp": "feed_forward.shared_expert.down_proj",
    },
    parts=_parts,
    separate_experts=False,
)
