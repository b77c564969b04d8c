"""BERT (Devlin et al. 2018), RoBERTa and XLM-RoBERTa (Conneau et al. 2019). Owns their equations: encoders.

All rows of a request see each other; it is one pass, keeps no cache and gives embeddings, not tokens. Positions are
learned, RoBERTa's from the one after its padding token on; norms follow each residual sum. The pooler, which embedding
models do not use, is left out.
"""

from collections.abc import Collection
from dataclasses import replace

from twostroke.errors import UnsupportedModelError
from twostroke.models.blocks import plain_ffn
from twostroke.models.config import MAX_CONTEXT, MAX_VOCAB, ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.hf_family import Fields, HFFamily
from twostroke.program.builder import Builder, Layer
from twostroke.program.values import Value


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a BERT model. Raises UnsupportedModelError for any output but "hidden"."""
    if set(outputs) != {"hidden"}:
        raise UnsupportedModelError(f"{config.name} is an encoder: it gives no logits and generates nothing")
    eps, first = config.norm_eps, config.first_position
    x = b.embed("token_embd", config.vocab_size, config.dim)
    x = b.add_position(x, "position_embd", first + config.context_length, first=first)
    x = b.layer_norm(b.add_vector(x, "token_types", config.num_token_types), "token_embd_norm", eps)
    for layer in b.layers(config.num_layers):
        x = b.layer_norm(b.add(x, _attention(b, x, layer, config)), layer / "attn_output_norm", eps)
        x = b.layer_norm(b.add(x, plain_ffn(b, x, layer, config)), layer / "layer_output_norm", eps)
    b.output("hidden", b.output_rows(x))


def _attention(b: Builder, x: Value, layer: Layer, config: ModelConfig) -> Value:
    q, k, v = (b.linear(x, layer / f"attn_{name}", config.dim, bias=True) for name in "qkv")
    attended = b.encoder_attention(q, k, v, layer / "attention", config.num_heads)
    return b.linear(attended, layer / "attn_output", config.dim, bias=True)


def _complete(facts: Facts, config: ModelConfig) -> Fields:
    facts.require_only("position_embedding_type", "absolute")
    facts.require_only("is_decoder", False)
    facts.require_only("add_cross_attention", False)
    table = facts.integer("max_position_embeddings", MAX_CONTEXT)
    first = 0 if facts.text("model_type") == "bert" else facts.count("pad_token_id", table - 2) + 1
    return {
        "norm_eps": facts.number("layer_norm_eps", 1.0, 1e-12),
        "context_length": table - first,
        "first_position": first,
        "num_token_types": facts.integer("type_vocab_size", MAX_VOCAB, 2),
        "unrotated_layers": frozenset(range(config.num_layers)),
        **dict.fromkeys(("qkv_bias", "attn_output_bias", "ffn_bias"), True),
    }


BERT = HFFamily(
    "bert",
    unsaid={"hidden_act": "gelu"},
    complete=_complete,
    names={
        "attn_q": "attention.self.query",
        "attn_k": "attention.self.key",
        "attn_v": "attention.self.value",
        "attn_output": "attention.output.dense",
        "attn_output_norm": "attention.output.LayerNorm",
        "ffn_up": "intermediate.dense",
        "ffn_down": "output.dense",
        "layer_output_norm": "output.LayerNorm",
    },
    top={
        "token_embd": "embeddings.word_embeddings",
        "position_embd": "embeddings.position_embeddings",
        "token_types": "embeddings.token_type_embeddings",
        "token_embd_norm": "embeddings.LayerNorm",
    },
    layers="encoder.layer.",
    roots=(("", "lm_head"), ("bert.", "cls.predictions.decoder"), ("roberta.", "lm_head.decoder")),
)
ROBERTA = replace(BERT, unsaid={**BERT.unsaid, "pad_token_id": 1})
