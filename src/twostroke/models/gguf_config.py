"""ModelConfig from GGUF metadata. Owns the keys of the format, and what it leaves unsaid of each architecture.

Every key is checked here, once, before use: present, of its type, in its range. Values that would change the
arithmetic in a way no family here has are refused by name.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.config import MAX_CONTEXT, MAX_DIM, MAX_EXPERTS, MAX_LAYERS, MAX_VOCAB, ModelConfig, Shapes
from twostroke.models.facts import Facts
from twostroke.models.registry import HF_ARCHITECTURES
from twostroke.models.rope_scaling import read_base, scaling_from_gguf
from twostroke.program.elementwise import Activation
from twostroke.weights.gguf import MetadataValue

Metadata = Mapping[str, MetadataValue]

# Architectures whose equations, for text, are those of another.
_SAME_FOR_TEXT = {"qwen2vl": "qwen2", "qwen3vl": "qwen3", "qwen3vlmoe": "qwen3moe", "granitemoe": "granite"}
# The converter reorders query and key rows of these, so that rotated pairs lie side by side.
_INTERLEAVED = frozenset({"llama", "granite", "granitemoe", "smollm3"})
_MIXTURES = frozenset({"qwen2moe", "qwen3moe", "olmoe", "gpt-oss"})
_LAYER_NORMS = frozenset({"stablelm", "gptneox"})
# Every n-th layer sees all tokens, the others a window, where the file gives a window and no pattern.
_WINDOW_PERIODS: Mapping[str, int] = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}
# What an older file of an architecture does not say.
_UNSAID: Mapping[str, Mapping[str, float]] = {
    "gemma2": {
        "gemma2.attn_logit_softcapping": 50.0,
        "gemma2.final_logit_softcapping": 30.0,
        "gemma2.attention.sliding_window": 4096,
    },
}
_ACTIVATIONS: Mapping[str, Activation] = {"gemma2": "gelu_tanh", "gemma3": "gelu_tanh", "gptneox": "gelu"}
_BIASES = {"qkv_bias": ("attn_q", "attn_qkv"), "attn_output_bias": ("attn_output",), "ffn_bias": ("ffn_up",)}
ROPE_FACTORS = "rope_freqs.weight"


def config_from_gguf(metadata: Metadata, tensor_shapes: Shapes) -> ModelConfig:
    """The configuration of a GGUF model.

    `tensor_shapes` maps tensor names to shapes in NumPy order; the vocabulary's size, biases, RoPE factors and a tied
    head follow from them. Raises ModelFileError for a key that is missing, ill-typed or out of range,
    UnsupportedModelError for a value that is valid but not supported; both name the key.
    """
    name = architecture(metadata)
    if name in HF_ARCHITECTURES:
        raise UnsupportedModelError(f"architecture {name!r} is read from Hugging Face directories only, not from GGUF")
    facts = Facts({**_UNSAID.get(name, {}), **metadata}, "metadata", f"{metadata['general.architecture']}.")
    facts.require_only("attention.causal", True)
    for key in ("attention.clamp_kqv", "attention.max_alibi_bias", "leading_dense_block_count"):
        facts.require_only(key, 0)
    dim = facts.integer("embedding_length", MAX_DIM)
    num_heads = facts.integer("attention.head_count", MAX_DIM)
    head_dim = _head_dim(facts, dim, num_heads)
    num_kv_heads = facts.integer("attention.head_count_kv", num_heads, num_heads)
    if num_heads % num_kv_heads:
        raise facts.error("attention.head_count_kv", f"is {num_kv_heads}, which does not divide {num_heads} heads")
    num_layers = facts.integer("block_count", MAX_LAYERS)
    eps = "attention.layer_norm_epsilon" if name in _LAYER_NORMS else "attention.layer_norm_rms_epsilon"
    return ModelConfig(
        architecture=name,
        name=_name(metadata, name),
        num_layers=num_layers,
        dim=dim,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        ffn_dim=facts.integer("feed_forward_length", MAX_DIM),
        vocab_size=_vocab_size(metadata, tensor_shapes, dim),
        context_length=facts.integer("context_length", MAX_CONTEXT),
        norm_eps=facts.number(eps, 1.0),
        windows=_windows(facts, name, num_layers),
        tied_head="output.weight" not in tensor_shapes,
        **_biases(tensor_shapes),
        **_rope(facts, head_dim, num_layers, tensor_shapes),
        **_experts(facts, name, tensor_shapes),
        **_constants(facts, name, dim, num_heads, num_layers),
    )


def architecture(metadata: Metadata) -> str:
    """The family of `general.architecture`. Raises ModelFileError where it is missing or not a name."""
    value = metadata.get("general.architecture")
    if not isinstance(value, str) or not value:
        raise ModelFileError("metadata 'general.architecture' is missing or not a string")
    return _SAME_FOR_TEXT.get(value, value)


def _name(metadata: Metadata, default: str) -> str:
    value = metadata.get("general.name", default)
    return value if isinstance(value, str) and value else default


def _head_dim(facts: Facts, dim: int, num_heads: int) -> int:
    head_dim = facts.integer("attention.key_length", MAX_DIM, dim // num_heads)
    if "attention.key_length" not in facts and dim % num_heads:
        raise facts.error("attention.head_count", f"is {num_heads}, which does not divide embedding_length {dim}")
    value_dim = facts.integer("attention.value_length", MAX_DIM, head_dim)
    if value_dim != head_dim:
        raise facts.unsupported(
            "attention.value_length", f"is {value_dim}; other than key_length {head_dim} is not supported"
        )
    return head_dim


def _vocab_size(metadata: Metadata, shapes: Shapes, dim: int) -> int:
    """Rows of the embedding table, which may be padded beyond the tokenizer's tokens."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    num_tokens = len(tokens) if isinstance(tokens, list) else 0
    shape = shapes.get("token_embd.weight", (num_tokens, dim))
    if len(shape) != 2 or shape[1] != dim:
        raise ModelFileError(f"tensor 'token_embd.weight' has shape {list(shape)}, not rows of embedding_length {dim}")
    if not 0 < shape[0] <= MAX_VOCAB:
        raise ModelFileError(f"vocabulary of {shape[0]:,} tokens is not in 1 to {MAX_VOCAB:,}")
    if num_tokens > shape[0]:
        raise ModelFileError(
            f"metadata 'tokenizer.ggml.tokens' has {num_tokens:,} tokens, tensor 'token_embd.weight' {shape[0]:,} rows"
        )
    return shape[0]


def _windows(facts: Facts, name: str, num_layers: int) -> tuple[int | None, ...]:
    window = facts.count("attention.sliding_window", MAX_CONTEXT)
    if not window:
        return ()
    pattern = facts.raw("attention.sliding_window_pattern")
    if pattern is None or isinstance(pattern, int):
        period = facts.integer(
            "attention.sliding_window_pattern", MAX_LAYERS, _WINDOW_PERIODS.get(name, MAX_LAYERS + 1)
        )
        return tuple(window if (layer + 1) % period else None for layer in range(num_layers))
    each = facts.sequence("attention.sliding_window_pattern", num_layers) or ()
    return tuple(window if has_window else None for has_window in each)


def _biases(shapes: Shapes) -> dict[str, Any]:
    return {field: any(f"blk.0.{tensor}.bias" in shapes for tensor in tensors) for field, tensors in _BIASES.items()}


def _rope(facts: Facts, head_dim: int, num_layers: int, shapes: Shapes) -> dict[str, Any]:
    name = facts.prefix.removesuffix(".")
    rope_dim = facts.integer("rope.dimension_count", head_dim, head_dim)
    if rope_dim % 2:
        raise facts.error("rope.dimension_count", f"is {rope_dim}, which is odd")
    base = read_base(facts, "rope.freq_base", 10000.0)
    # OLMo 3, of the architecture "olmo2", scales the layers without a window only.
    local = {"gemma3": read_base(facts, "rope.freq_base_swa", 10000.0), "olmo2": base}.get(name)
    # A file says nothing of layers without rotation: in this family they are every fourth one.
    unrotated = range(3, num_layers, 4) if name == "smollm3" else ()
    context = facts.integer("context_length", MAX_CONTEXT)
    scaling = scaling_from_gguf(facts, context, has_long_factors="rope_factors_long.weight" in shapes)
    if scaling is not None and name == "gpt-oss":
        scaling = replace(scaling, truncate=False)  # as the model was trained, which no file tells
    return {
        "rope_dim": rope_dim,
        "rope_base": base,
        "rope_pairing": "interleaved" if name in _INTERLEAVED else "half",
        "rope_scaling": scaling,
        "rope_factors": ROPE_FACTORS in shapes,
        "local_rope_base": local,
        "unrotated_layers": frozenset(unrotated),
    }


def _experts(facts: Facts, name: str, shapes: Shapes) -> dict[str, Any]:
    count = (
        facts.integer("expert_count", MAX_EXPERTS) if name in _MIXTURES else facts.count("expert_count", MAX_EXPERTS)
    )
    if not count:
        return {}
    ffn_dim = facts.integer("expert_feed_forward_length", MAX_DIM, facts.integer("feed_forward_length", MAX_DIM))
    gate = shapes.get("blk.0.ffn_gate_exps.weight", ())
    shared = shapes.get("blk.0.ffn_gate_shexp.weight", ())
    return {
        "num_experts": count,
        "experts_per_token": facts.integer("expert_used_count", count),
        "expert_ffn_dim": gate[1] if len(gate) == 3 else ffn_dim,
        "shared_ffn_dim": facts.count("expert_shared_feed_forward_length", MAX_DIM) or (shared[0] if shared else 0),
        "renormalize_experts": facts.boolean("expert_weights_norm", name not in ("qwen2moe", "olmoe")),
    }


def _constants(facts: Facts, name: str, dim: int, num_heads: int, num_layers: int) -> dict[str, Any]:
    scale = facts.optional_number("attention.scale", 1e6)
    if (name, num_layers) in (("gemma2", 46), ("gemma3", 62)):  # the 27B models, whose scale no file tells
        scale = (dim / num_heads) ** -0.5
    logit_scale = facts.number("logit_scale", 1e6, 1.0)
    return {
        "attention_scale": scale,
        "attention_soft_cap": facts.optional_number("attn_logit_softcapping", 1e6),
        "logit_soft_cap": facts.optional_number("final_logit_softcapping", 1e6),
        "embedding_scale": dim**0.5 if name.startswith("gemma") else facts.number("embedding_scale", 1e6, 1.0),
        "residual_scale": facts.number("residual_scale", 1e6, 1.0),
        "logit_scale": 1 / logit_scale if name.startswith("granite") else logit_scale,
        "parallel_residual": facts.boolean("use_parallel_residual", name == "gptneox"),
        "activation": _ACTIVATIONS.get(name, "silu"),
    }
