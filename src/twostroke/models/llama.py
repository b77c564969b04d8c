"""The Llama family (Touvron et al. 2023) and those of its equations: Mistral and Mixtral (Jiang et al. 2023, 2024),
SmolLM2 and 3, Phi-3 and 4, Granite. Owns what they share: RMS norms before attention and a gated feed-forward.

They differ in facts that the configuration states: Mistral's window, SmolLM3's layers without rotation, Granite's
factors; Phi's fused tensors are the source's matter (`parts`). Mixtral's feed-forward is a mixture of experts.
"""

from collections.abc import Collection

from twostroke.models.blocks import attention, experts, gated_ffn, head
from twostroke.models.config import ModelConfig
from twostroke.program.builder import Builder


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Llama model and name the outputs asked for."""
    x = b.scale(b.embed("token_embd", config.vocab_size, config.dim), config.embedding_scale)
    for layer in b.layers(config.num_layers):
        h = b.rms_norm(x, layer / "attn_norm", config.norm_eps)
        x = b.add(x, b.scale(attention(b, h, layer, config), config.residual_scale))
        h = b.rms_norm(x, layer / "ffn_norm", config.norm_eps)
        mixed = experts(b, h, layer, config, "topk_softmax") if config.num_experts else gated_ffn(b, h, layer, config)
        x = b.add(x, b.scale(mixed, config.residual_scale))
    head(b, x, config, outputs)
