"""The Gemma families (Gemma Team 2024, 2025): Gemma 2 and 3. Owns their equations.

Norms before and after attention and feed-forward, the scaled embedding, soft caps (2), norms of each query and key head
(3). Windows alternate with full attention, and Gemma 3's windowed layers rotate by a base of their own.
"""

from collections.abc import Collection

from twostroke.models.blocks import QKNorm, attention, gated_ffn, head
from twostroke.models.config import ModelConfig
from twostroke.program.builder import Builder
from twostroke.program.values import Value


def gemma2(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Gemma 2 model and name the outputs asked for."""
    _build(b, config, outputs, None)


def gemma3(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Gemma 3 text model and name the outputs asked for."""
    _build(b, config, outputs, "head")


def _build(b: Builder, config: ModelConfig, outputs: Collection[str], qk_norm: QKNorm | None) -> None:
    def norm(x: Value, name: str) -> Value:
        return b.rms_norm(x, name, config.norm_eps, offset=config.norm_offset)

    x = b.scale(b.embed("token_embd", config.vocab_size, config.dim), config.embedding_scale)
    for layer in b.layers(config.num_layers):
        attended = attention(b, norm(x, layer / "attn_norm"), layer, config, qk_norm=qk_norm)
        x = b.add(x, norm(attended, layer / "post_attention_norm"))
        mixed = gated_ffn(b, norm(x, layer / "ffn_norm"), layer, config, activation="gelu_tanh")
        x = b.add(x, norm(mixed, layer / "post_ffw_norm"))
    head(b, x, config, outputs)
