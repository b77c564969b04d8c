"""The Llama family (Touvron et al. 2023): Llama 2 and 3, SmolLM2, and what GGUF calls "llama". Owns its equations.

GGUF stores these query and key matrices with the rows of each rotated pair side by side: RoPE is interleaved.
"""

from collections.abc import Collection

from twostroke.models.config import ModelConfig
from twostroke.program.builder import Builder


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Llama model and name the outputs asked for."""
    rope, eps, bias = config.rope("interleaved"), config.norm_eps, config.qkv_bias
    x = b.embed("token_embd", config.vocab_size, config.dim)
    for layer in b.layers(config.num_layers):
        h = b.rms_norm(x, layer / "attn_norm", eps)
        q = b.linear(h, layer / "attn_q", config.q_dim, bias=bias)
        k = b.linear(h, layer / "attn_k", config.kv_dim, bias=bias)
        v = b.linear(h, layer / "attn_v", config.kv_dim, bias=bias)
        q, k = b.rope(q, config.head_dim, rope), b.rope(k, config.head_dim, rope)
        attended = b.attention(q, k, v, config.cache(layer))
        x = b.add(x, b.linear(attended, layer / "attn_output", config.dim, bias=config.attn_output_bias))
        h = b.rms_norm(x, layer / "ffn_norm", eps)
        gate, up = (b.linear(h, layer / name, config.ffn_dim) for name in ("ffn_gate", "ffn_up"))
        x = b.add(x, b.linear(b.swiglu(gate, up), layer / "ffn_down", config.dim))
    hidden = b.rms_norm(b.output_rows(x), "output_norm", eps)
    if "hidden" in outputs:
        b.output("hidden", hidden)
    if "logits" in outputs:
        b.output("logits", b.linear(hidden, config.head, config.vocab_size))
