"""The hybrid Qwen families (Qwen Team 2025): Qwen3-Next, Qwen3.5 and 3.6. Owns their equations.

Most layers have linear attention by the gated delta rule behind short convolutions, every fourth one softmax attention
whose result a gate of every element scales. Norms are of 1 + w. Feed-forward layers are Qwen's own, dense or a mixture
with a gated shared expert.
"""

from collections.abc import Collection, Mapping

from twostroke.models.blocks import gated_ffn, head
from twostroke.models.config import MAX_DIM, MAX_LAYERS, ModelConfig, RecurrentSizes
from twostroke.models.facts import Facts
from twostroke.models.hf_family import Fields, HFFamily, mixture, rows
from twostroke.models.part import Part
from twostroke.models.qwen import mixture as experts_and_shared
from twostroke.program.builder import Builder, Layer
from twostroke.program.values import Value


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a hybrid Qwen model and name the outputs asked for."""
    x, eps = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps
    for layer in b.layers(config.num_layers):
        mix = _linear_attention if layer.index in config.recurrent_layers else _gated_attention
        x = b.add(x, mix(b, b.rms_norm(x, layer / "attn_norm", eps, offset=config.norm_offset), layer, config))
        h = b.rms_norm(x, layer / "ffn_norm", eps, offset=config.norm_offset)
        feed_forward = experts_and_shared if config.has_experts(layer) else gated_ffn
        x = b.add(x, feed_forward(b, h, layer, config))
    head(b, x, config, outputs)


def _linear_attention(b: Builder, h: Value, layer: Layer, config: ModelConfig) -> Value:
    sizes = _sizes(config)
    keys, values = sizes.num_key_heads * sizes.key_dim, sizes.num_value_heads * sizes.value_dim
    q, k, v, gate = (
        b.linear(h, layer / f"ssm_{name}", dim)
        for name, dim in (("q", keys), ("k", keys), ("v", values), ("gate", values))
    )
    write, decay = (b.linear(h, layer / f"ssm_{name}", sizes.num_value_heads) for name in ("beta", "alpha"))
    q, k, v = (b.convolution(x, layer / f"ssm_{name}_conv", sizes.width) for name, x in (("q", q), ("k", k), ("v", v)))
    mixed = b.gated_delta(q, k, v, write, decay, layer / "ssm", num_key_heads=sizes.num_key_heads)
    normed = b.rms_norm(mixed, layer / "ssm_norm", config.norm_eps, group_dim=sizes.value_dim)
    return b.linear(b.swiglu(gate, normed), layer / "ssm_out", config.dim)


def _gated_attention(b: Builder, h: Value, layer: Layer, config: ModelConfig) -> Value:
    bias, heads, eps = config.qkv_bias, config.head_dim, config.norm_eps
    q, gate = (b.linear(h, layer / f"attn_{name}", config.q_dim, bias=bias) for name in ("q", "gate"))
    k, v = (b.linear(h, layer / f"attn_{name}", config.kv_dim, bias=bias) for name in "kv")
    q, k = (
        b.rms_norm(x, layer / f"attn_{name}_norm", eps, offset=config.norm_offset, group_dim=heads)
        for name, x in (("q", q), ("k", k))
    )
    rope = config.rope(layer)
    if rope is not None:
        q, k = b.rope(q, heads, rope), b.rope(k, heads, rope)
    attended = b.sigmoid_gate(b.attention(q, k, v, config.cache(layer)), gate)
    return b.linear(attended, layer / "attn_output", config.dim, bias=config.attn_output_bias)


def _sizes(config: ModelConfig) -> RecurrentSizes:
    if config.recurrent is None:
        raise ValueError("a model of this family has sizes of linear attention")
    return config.recurrent


def _complete(facts: Facts, config: ModelConfig) -> Fields:
    num_key, num_value = (facts.integer(f"linear_num_{part}_heads", MAX_DIM) for part in ("key", "value"))
    if num_value % num_key:
        raise facts.error("linear_num_value_heads", f"is {num_value}, which {num_key} key heads do not divide")
    key_dim, value_dim = (facts.integer(f"linear_{part}_head_dim", MAX_DIM) for part in ("key", "value"))
    fields: Fields = {
        "recurrent": RecurrentSizes(
            num_key, num_value, key_dim, value_dim, facts.integer("linear_conv_kernel_dim", 64)
        ),
        "recurrent_layers": _recurrent_layers(facts, config.num_layers),
        "norm_offset": 1.0,
    }
    if "num_experts" not in facts:
        return fields
    shared = facts.integer("shared_expert_intermediate_size", MAX_DIM)
    return fields | mixture(facts, "num_experts", shared=shared, dense=frozenset())


def _recurrent_layers(facts: Facts, num_layers: int) -> frozenset[int]:
    types = facts.sequence("layer_types", num_layers)
    if types is None:
        interval = facts.integer("full_attention_interval", MAX_LAYERS, 4)
        return frozenset(layer for layer in range(num_layers) if (layer + 1) % interval)
    for each in types:
        if each not in ("linear_attention", "full_attention"):
            raise facts.unsupported("layer_types", f"names {str(each)[:60]!r}, which is not supported")
    return frozenset(layer for layer, each in enumerate(types) if each == "linear_attention")


def _gated_parts(config: ModelConfig, prefix: str) -> dict[str, Part]:
    """Of each head, rows of the query and then of its gate."""
    parts: dict[str, Part] = {}
    for kind in ("weight", "bias") if config.qkv_bias else ("weight",):
        shape = (config.q_dim, config.dim) if kind == "weight" else (config.q_dim,)
        view, vectors = (config.num_heads, 2, config.head_dim), kind == "bias"
        for place, name in enumerate(("q", "gate")):
            part = Part(f"{prefix}attn_q_gate.{kind}", shape, view, (slice(None), place), vectors=vectors)
            parts[f"{prefix}attn_{name}.{kind}"] = part
    return parts


def _parts(config: ModelConfig, layer: int) -> Mapping[str, Part]:
    """Qwen3.5: q, k and v in one matrix; all three convolutions in one."""
    prefix = f"blk.{layer}."
    if layer not in config.recurrent_layers:
        return _gated_parts(config, prefix)
    sizes, parts, first = _sizes(config), {}, 0
    keys, values = sizes.num_key_heads * sizes.key_dim, sizes.num_value_heads * sizes.value_dim
    for name, dim in (("q", keys), ("k", keys), ("v", values)):
        total = 2 * keys + values
        parts[f"{prefix}ssm_{name}.weight"] = rows(f"{prefix}ssm_qkv.weight", (dim, config.dim), first, total)
        convolution = rows(f"{prefix}ssm_conv1d.weight", (dim, sizes.width), first, total)
        parts[f"{prefix}ssm_{name}_conv.weight"] = convolution
        first += dim
    return parts


def _parts_by_head(config: ModelConfig, layer: int) -> Mapping[str, Part]:
    """Qwen3-Next: q, k, v and gate of one key head after those of another in one matrix, so too the two gates."""
    prefix, parts = f"blk.{layer}.", dict(_parts(config, layer))
    if layer not in config.recurrent_layers:
        return parts
    sizes = _sizes(config)
    heads, shared = sizes.num_key_heads, sizes.num_value_heads // sizes.num_key_heads
    dims = {"q": sizes.key_dim, "k": sizes.key_dim, "v": shared * sizes.value_dim, "gate": shared * sizes.value_dim}
    for tensor, each in (("ssm_qkvz", dims), ("ssm_ba", {"beta": shared, "alpha": shared})):
        first = 0
        for name, dim in each.items():
            view, index = (heads, sum(each.values())), (slice(None), slice(first, first + dim))
            shape = (heads * dim, config.dim)
            parts[f"{prefix}ssm_{name}.weight"] = Part(f"{prefix}{tensor}.weight", shape, view, index)
            first += dim
    return parts


_NAMES = {
    "attn_q_gate": "self_attn.q_proj",
    "ssm_qkv": "linear_attn.in_proj_qkv",
    "ssm_gate": "linear_attn.in_proj_z",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_qkvz": "linear_attn.in_proj_qkvz",
    "ssm_ba": "linear_attn.in_proj_ba",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_a": "linear_attn.A_log*",
    "ssm_dt": "linear_attn.dt*",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
}
_UNSAID = {"rms_norm_eps": 1e-6, "partial_rotary_factor": 0.25, "head_dim": 256, "norm_topk_prob": True}
NEXT = HFFamily("qwen3next", unsaid=_UNSAID, complete=_complete, names=_NAMES, parts=_parts_by_head)
QWEN35 = HFFamily("qwen35", unsaid=_UNSAID, complete=_complete, names=_NAMES, parts=_parts)
QWEN35_MOE = HFFamily("qwen35moe", unsaid=_UNSAID, complete=_complete, names=_NAMES, parts=_parts)
