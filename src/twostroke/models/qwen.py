"""The Qwen2 family (Yang et al. 2024): Qwen2, Qwen2.5 and their Coder models. Owns its equations.

As Llama, but q, k and v have biases, and GGUF stores the rotated halves of each head apart: RoPE pairs (i, i + dim/2).
"""

from collections.abc import Collection

from twostroke.models.config import ModelConfig
from twostroke.program.builder import Builder


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Qwen2 model and name the outputs asked for."""
    rope, eps = config.rope("half"), config.norm_eps
    x = b.embed("token_embd", config.vocab_size, config.dim)
    for layer in b.layers(config.num_layers):
        h = b.rms_norm(x, layer / "attn_norm", eps)
        q = b.linear(h, layer / "attn_q", config.q_dim, bias=True)
        k = b.linear(h, layer / "attn_k", config.kv_dim, bias=True)
        v = b.linear(h, layer / "attn_v", config.kv_dim, bias=True)
        q, k = b.rope(q, config.head_dim, rope), b.rope(k, config.head_dim, rope)
        x = b.add(x, b.linear(b.attention(q, k, v, config.cache(layer)), layer / "attn_output", config.dim))
        h = b.rms_norm(x, layer / "ffn_norm", eps)
        gate, up = (b.linear(h, layer / name, config.ffn_dim) for name in ("ffn_gate", "ffn_up"))
        x = b.add(x, b.linear(b.swiglu(gate, up), layer / "ffn_down", config.dim))
    hidden = b.rms_norm(b.output_rows(x), "output_norm", eps)
    if "hidden" in outputs:
        b.output("hidden", hidden)
    if "logits" in outputs:
        b.output("logits", b.linear(hidden, config.head, config.vocab_size))
