"""GPT-NeoX (Black et al. 2022) and StableLM (Bellagente et al. 2024). Owns their equations.

Layer norms with biases, RoPE of a part of each head, and where the configuration says so a parallel residual: attention
and feed-forward both read the layer's input. GPT-NeoX has a plain feed-forward; StableLM has a gated one, which in its
parallel form reads attention's norm.
"""

from collections.abc import Collection

from twostroke.models.blocks import attention, gated_ffn, head, plain_ffn
from twostroke.models.config import ModelConfig
from twostroke.program.builder import Builder


def gptneox(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a GPT-NeoX model and name the outputs asked for."""
    x, eps = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps
    for layer in b.layers(config.num_layers):
        attended = b.add(x, attention(b, b.layer_norm(x, layer / "attn_norm", eps), layer, config))
        h = b.layer_norm(x if config.parallel_residual else attended, layer / "ffn_norm", eps)
        x = b.add(attended, plain_ffn(b, h, layer, config))
    head(b, x, config, outputs, layer_norm=True)


def stablelm(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a StableLM model and name the outputs asked for."""
    x, eps = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps
    for layer in b.layers(config.num_layers):
        h = b.layer_norm(x, layer / "attn_norm", eps)
        attended = b.add(x, attention(b, h, layer, config))
        if not config.parallel_residual:
            h = b.layer_norm(attended, layer / "ffn_norm", eps)
        x = b.add(attended, gated_ffn(b, h, layer, config))
    head(b, x, config, outputs, layer_norm=True)
