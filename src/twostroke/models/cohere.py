"""The Command families (Cohere 2024): Command-R and R+, Command-R7B and A. Owns their equations.

Attention and feed-forward both read the layer's normed input; norms are layer norms without bias; logits are scaled.
R+ normalises each query and key head with weights of its own. In Command-R7B three layers of four have a window, and
those without one are not rotated.
"""

from collections.abc import Collection

from twostroke.models.blocks import gated_ffn, head
from twostroke.models.config import MAX_CONTEXT, MAX_LAYERS, ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.hf_family import Fields, HFFamily
from twostroke.program.builder import Builder, Layer
from twostroke.program.values import Value


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a Command model and name the outputs asked for."""
    x = b.embed("token_embd", config.vocab_size, config.dim)
    for layer in b.layers(config.num_layers):
        h = b.layer_norm(x, layer / "attn_norm", config.norm_eps, bias=False)
        x = b.add(b.add(x, _attention(b, h, layer, config)), gated_ffn(b, h, layer, config))
    head(b, x, config, outputs, layer_norm=True, norm_bias=False)


def _attention(b: Builder, h: Value, layer: Layer, config: ModelConfig) -> Value:
    q = b.linear(h, layer / "attn_q", config.q_dim, bias=config.qkv_bias)
    k, v = (b.linear(h, layer / f"attn_{name}", config.kv_dim, bias=config.qkv_bias) for name in "kv")
    size, rope = config.head_dim, config.rope(layer)
    if config.qk_norm:
        q = b.layer_norm(q, layer / "attn_q_norm", config.norm_eps, bias=False, group_dim=size)
        k = b.layer_norm(k, layer / "attn_k_norm", config.norm_eps, bias=False, group_dim=size)
    if rope is not None:
        q, k = b.rope(q, size, rope), b.rope(k, size, rope)
    attended = b.attention(q, k, v, config.cache(layer))
    return b.linear(attended, layer / "attn_output", config.dim, bias=config.attn_output_bias)


def _complete(facts: Facts, config: ModelConfig) -> Fields:
    return {
        "rope_pairing": "interleaved",
        "norm_eps": facts.number("layer_norm_eps", 1.0, 1e-5),
        "logit_scale": facts.number("logit_scale", 1e6),
        "qk_norm": facts.boolean("use_qk_norm", False),
    }


def _complete_windowed(facts: Facts, config: ModelConfig) -> Fields:
    window, types = facts.integer("sliding_window", MAX_CONTEXT), facts.sequence("layer_types", config.num_layers)
    period = facts.integer("sliding_window_pattern", MAX_LAYERS, 4)
    if types is None:
        types = ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(config.num_layers)]
    full = frozenset(layer for layer, each in enumerate(types) if each != "sliding_attention")
    windows = tuple(None if layer in full else window for layer in range(config.num_layers))
    return _complete(facts, config) | {"windows": windows, "unrotated_layers": full}


_UNSAID = {"tie_word_embeddings": True, "logit_scale": 0.0625}
COHERE = HFFamily("command-r", unsaid=_UNSAID, complete=_complete)
COHERE2 = HFFamily("cohere2", unsaid={**_UNSAID, "sliding_window": 4096}, complete=_complete_windowed)
