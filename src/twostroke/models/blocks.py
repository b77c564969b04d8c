"""Blocks that families share: attention with its projections, feed-forward layers, mixtures of experts, the head.

Owns what is the same in all of them; what makes a family is in the family's file.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from twostroke.models.config import ModelConfig
from twostroke.program.builder import Builder, Layer
from twostroke.program.elementwise import GatedActivation
from twostroke.program.experts import Routing
from twostroke.program.values import Value, Weight

QKNorm = Literal["head", "row"]


def attention(
    b: Builder, h: Value, layer: Layer, config: ModelConfig, *, qk_norm: QKNorm | None = None, sinks: bool = False
) -> Value:
    """Self-attention of normed rows: projections, RoPE, attention, output projection.

    `qk_norm` normalises queries and keys before they are rotated, head by head or as whole rows.
    """
    q = b.linear(h, layer / "attn_q", config.q_dim, bias=config.qkv_bias)
    k = b.linear(h, layer / "attn_k", config.kv_dim, bias=config.qkv_bias)
    v = b.linear(h, layer / "attn_v", config.kv_dim, bias=config.qkv_bias)
    if qk_norm is not None:
        group, offset = config.head_dim if qk_norm == "head" else None, config.norm_offset
        q = b.rms_norm(q, layer / "attn_q_norm", config.norm_eps, offset=offset, group_dim=group)
        k = b.rms_norm(k, layer / "attn_k_norm", config.norm_eps, offset=offset, group_dim=group)
    rope = config.rope(layer)
    if rope is not None:
        q, k = b.rope(q, config.head_dim, rope), b.rope(k, config.head_dim, rope)
    if config.position_scale is not None:
        q = b.scale_by_position(q, *config.position_scale)
    sink = layer / "attn_sinks" if sinks else None
    scale, cap = config.attention_scale, config.attention_soft_cap
    attended = b.attention(q, k, v, config.cache(layer), scale=scale, soft_cap=cap, sinks=sink)
    return b.linear(attended, layer / "attn_output", config.dim, bias=config.attn_output_bias)


def gated_ffn(
    b: Builder, h: Value, layer: Layer, config: ModelConfig, *, activation: GatedActivation = "silu"
) -> Value:
    """down(activation(gate(h)) * up(h))."""
    gate, up = (b.linear(h, layer / name, config.ffn_dim, bias=config.ffn_bias) for name in ("ffn_gate", "ffn_up"))
    return b.linear(b.gated(gate, up, activation), layer / "ffn_down", config.dim, bias=config.ffn_bias)


def plain_ffn(b: Builder, h: Value, layer: Layer, config: ModelConfig) -> Value:
    """down(activation(up(h)))."""
    up = b.activate(b.linear(h, layer / "ffn_up", config.ffn_dim, bias=config.ffn_bias), config.activation)
    return b.linear(up, layer / "ffn_down", config.dim, bias=config.ffn_bias)


def experts(
    b: Builder, h: Value, layer: Layer, config: ModelConfig, routing: Routing, *, choice_bias: bool = False
) -> Value:
    """A mixture of gated experts that a linear routes to."""
    router = b.linear(h, layer / "ffn_gate_inp", config.num_experts)
    routed = config.routed(routing)
    if choice_bias:
        routed = replace(routed, choice_bias=Weight(layer / "exp_probs_b.bias", (config.num_experts,)))
    return b.experts(h, router, layer / "ffn", config.expert_ffn_dim, routed)


def shared_expert(b: Builder, h: Value, layer: Layer, config: ModelConfig) -> Value:
    """The gated feed-forward that every row passes beside those it chooses; several are one of their total size."""
    gate, up = (b.linear(h, layer / f"ffn_{name}_shexp", config.shared_ffn_dim) for name in ("gate", "up"))
    return b.linear(b.swiglu(gate, up), layer / "ffn_down_shexp", config.dim)


def head(
    b: Builder,
    x: Value,
    config: ModelConfig,
    outputs: Collection[str],
    *,
    layer_norm: bool = False,
    norm_bias: bool = True,
) -> None:
    """The last norm, of the rows whose outputs were asked for, and the logits; names the outputs."""
    rows, eps = b.output_rows(x), config.norm_eps
    hidden = (
        b.layer_norm(rows, "output_norm", eps, bias=norm_bias)
        if layer_norm
        else b.rms_norm(rows, "output_norm", eps, offset=config.norm_offset)
    )
    if "hidden" in outputs:
        b.output("hidden", hidden)
    if "logits" in outputs:
        logits = b.linear(hidden, config.head, config.vocab_size, bias=config.head_bias)
        b.output("logits", b.soft_cap(b.scale(logits, config.logit_scale), config.logit_soft_cap))
