"""The Qwen families (Yang et al. 2024, 2025): Qwen2 and 2.5, Qwen3, and the mixtures of experts of both.

Owns their equations: Llama's, where q, k and v of Qwen2 have biases, those of Qwen3 a norm of each query and key head.
Every layer of Qwen2-MoE has a shared expert beside the chosen ones, gated row by row.
"""

from collections.abc import Collection

from twostroke.models.blocks import attention, experts, gated_ffn, head, shared_expert
from twostroke.models.config import ModelConfig
from twostroke.program.builder import Builder, Layer
from twostroke.program.values import Value


def qwen2(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Qwen2 or Qwen2-MoE model and name the outputs asked for."""
    _build(b, config, outputs, has_qk_norm=False)


def qwen3(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Qwen3 or Qwen3-MoE model and name the outputs asked for."""
    _build(b, config, outputs, has_qk_norm=True)


def _build(b: Builder, config: ModelConfig, outputs: Collection[str], *, has_qk_norm: bool) -> None:
    x = b.embed("token_embd", config.vocab_size, config.dim)
    for layer in b.layers(config.num_layers):
        h = b.rms_norm(x, layer / "attn_norm", config.norm_eps)
        x = b.add(x, attention(b, h, layer, config, qk_norm="head" if has_qk_norm else None))
        h = b.rms_norm(x, layer / "ffn_norm", config.norm_eps)
        x = b.add(x, mixture(b, h, layer, config) if config.num_experts else gated_ffn(b, h, layer, config))
    head(b, x, config, outputs)


def mixture(b: Builder, h: Value, layer: Layer, config: ModelConfig) -> Value:
    """Experts, and where there is one the shared expert, gated row by row."""
    mixed = experts(b, h, layer, config, "softmax_topk")
    if not config.shared_ffn_dim:
        return mixed
    shared = shared_expert(b, h, layer, config)
    return b.add(mixed, b.sigmoid_gate(shared, b.linear(h, layer / "ffn_gate_inp_shexp", 1)))
