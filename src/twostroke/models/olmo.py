"""The OLMo families: OLMo 2 (OLMo Team 2024) and OLMoE (Muennighoff et al. 2024). Owns their equations.

Both normalise queries and keys as whole rows. OLMo 2 normalises what attention and feed-forward give, not what they
read; OLMoE, as Llama, what they read, and its feed-forward is a mixture of experts.
"""

from collections.abc import Collection

from twostroke.models.blocks import attention, experts, gated_ffn, head
from twostroke.models.config import ModelConfig
from twostroke.program.builder import Builder


def olmo2(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of an OLMo 2 model and name the outputs asked for."""
    x, eps = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps
    for layer in b.layers(config.num_layers):
        attended = attention(b, x, layer, config, qk_norm="row")
        x = b.add(x, b.rms_norm(attended, layer / "post_attention_norm", eps))
        x = b.add(x, b.rms_norm(gated_ffn(b, x, layer, config), layer / "post_ffw_norm", eps))
    head(b, x, config, outputs)


def olmoe(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of an OLMoE model and name the outputs asked for."""
    x, eps = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps
    for layer in b.layers(config.num_layers):
        x = b.add(x, attention(b, b.rms_norm(x, layer / "attn_norm", eps), layer, config, qk_norm="row"))
        x = b.add(x, experts(b, b.rms_norm(x, layer / "ffn_norm", eps), layer, config, "softmax_topk"))
    head(b, x, config, outputs)
