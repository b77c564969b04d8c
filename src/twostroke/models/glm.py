"""The GLM families (GLM Team 2024, 2025): GLM-4, and the mixtures GLM-4.5 to 4.7. Owns their equations.

RoPE of half of each head, in pairs that lie side by side; GLM-4-0414 has norms before and after attention and
feed-forward. GLM-4.5 chooses experts as DeepSeek V3 does, after a dense layer, beside a shared one; its rotated pairs
are halves.
"""

from collections.abc import Collection, Mapping

from twostroke.models.blocks import attention, experts, gated_ffn, head, shared_expert
from twostroke.models.config import MAX_DIM, MAX_EXPERTS, ModelConfig
from twostroke.models.deepseek import SHARED_NAMES
from twostroke.models.facts import Facts
from twostroke.models.hf_family import Fields, HFFamily, first_dense, groups, mixture, rows
from twostroke.models.part import Part
from twostroke.program.builder import Builder
from twostroke.program.values import Value


def glm4(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a GLM-4-0414 model and name the outputs asked for."""
    _build(b, config, outputs, has_post_norms=True)


def glm(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of an earlier GLM-4 model and name the outputs asked for."""
    _build(b, config, outputs, has_post_norms=False)


def _build(b: Builder, config: ModelConfig, outputs: Collection[str], *, has_post_norms: bool) -> None:
    x, eps = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps

    def after(y: Value, name: str) -> Value:
        return b.rms_norm(y, name, eps) if has_post_norms else y

    for layer in b.layers(config.num_layers):
        attended = attention(b, b.rms_norm(x, layer / "attn_norm", eps), layer, config)
        x = b.add(x, after(attended, layer / "post_attention_norm"))
        mixed = gated_ffn(b, b.rms_norm(x, layer / "ffn_norm", eps), layer, config)
        x = b.add(x, after(mixed, layer / "post_ffw_norm"))
    head(b, x, config, outputs)


def glm4moe(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a GLM-4.5 model and name the outputs asked for."""
    x, eps, qk_norm = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps, config.qk_norm
    for layer in b.layers(config.num_layers):
        h = b.rms_norm(x, layer / "attn_norm", eps)
        x = b.add(x, attention(b, h, layer, config, qk_norm="head" if qk_norm else None))
        h = b.rms_norm(x, layer / "ffn_norm", eps)
        if config.has_experts(layer):
            mixed = experts(b, h, layer, config, "sigmoid_topk", choice_bias=True)
            x = b.add(x, b.add(mixed, shared_expert(b, h, layer, config)))
        else:
            x = b.add(x, gated_ffn(b, h, layer, config))
    head(b, x, config, outputs)


def _complete(facts: Facts, config: ModelConfig) -> Fields:
    return {"rope_pairing": "interleaved", "attn_output_bias": False}


def _complete_moe(facts: Facts, config: ModelConfig) -> Fields:
    shared = facts.integer("moe_intermediate_size", MAX_DIM) * facts.integer("n_shared_experts", MAX_EXPERTS, 1)
    fields = mixture(facts, "n_routed_experts", shared=shared, dense=first_dense(facts))
    return fields | {
        "attn_output_bias": False,
        "qk_norm": facts.boolean("use_qk_norm", False),
        **groups(facts, fields["num_experts"], fields["experts_per_token"]),
    }


def _parts(config: ModelConfig, layer: int) -> Mapping[str, Part]:
    tensor, size = f"blk.{layer}.ffn_gate_up.weight", config.ffn_dim
    return {
        f"blk.{layer}.ffn_{name}.weight": rows(tensor, (size, config.dim), first, 2 * size)
        for name, first in (("gate", 0), ("up", size))
    }


_NAMES = {
    "ffn_gate_up": "mlp.gate_up_proj",
    "post_attention_norm": "post_self_attn_layernorm",
    "post_ffw_norm": "post_mlp_layernorm",
}
_UNSAID = {
    "head_dim": 128,
    "attention_bias": True,
    "rms_norm_eps": 1.5625e-7,
    "partial_rotary_factor": 0.5,
}
_MOE = {"partial_rotary_factor": 0.5, "norm_topk_prob": True, "first_k_dense_replace": 1}
GLM4 = HFFamily("glm4", unsaid=_UNSAID, complete=_complete, names=_NAMES, parts=_parts)
GLM = HFFamily("chatglm", unsaid=_UNSAID, complete=_complete, names=_NAMES, parts=_parts)
GLM4_MOE = HFFamily("glm4moe", unsaid=_MOE, complete=_complete_moe, names=SHARED_NAMES)
