"""The gpt-oss family (OpenAI 2025): mixtures of experts with attention sinks. Owns its equations.

Every linear has a bias, each head a sink, windows alternate with full attention; experts use a clamped SwiGLU of their
own. GGUF calls the norm before the experts `post_attention_norm`.
"""

from collections.abc import Collection

from twostroke.models.blocks import attention, head
from twostroke.models.config import ModelConfig
from twostroke.program.builder import Builder


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a gpt-oss model and name the outputs asked for."""
    x, eps = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps
    routed = config.routed("topk_softmax")
    for layer in b.layers(config.num_layers):
        x = b.add(x, attention(b, b.rms_norm(x, layer / "attn_norm", eps), layer, config, sinks=True))
        h = b.rms_norm(x, layer / "post_attention_norm", eps)
        router = b.linear(h, layer / "ffn_gate_inp", config.num_experts, bias=True)
        width = config.expert_ffn_dim
        mixed = b.experts(h, router, layer / "ffn", width, routed, activation="swiglu_oai", bias=True)
        x = b.add(x, mixed)
    head(b, x, config, outputs)
