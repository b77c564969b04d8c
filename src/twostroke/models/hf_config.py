"""ModelConfig from a Hugging Face config.json. Owns the keys of that format and what their absence means.

Rotated pairs are halves of a head in all of these models. Every key is checked before use; a value that would change
the arithmetic in a way no family here has is refused by name.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.config import MAX_CONTEXT, MAX_DIM, MAX_EXPERTS, MAX_LAYERS, MAX_VOCAB, ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.hf_families import HF_FAMILIES
from twostroke.models.hf_text import text_config
from twostroke.models.rope_scaling import read_base, scaling_from_hf
from twostroke.program.elementwise import Activation

ARCHITECTURES: Mapping[str, str] = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "smollm3": "smollm3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "granite": "granite",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "olmoe": "olmoe",
    "stablelm": "stablelm",
    "gpt_neox": "gptneox",
    "gpt_oss": "gpt-oss",
    **{kind: family.architecture for kind, family in HF_FAMILIES.items()},
}
_GEMMA = {"head_dim": 256, "tie_word_embeddings": True, "sliding_window": 4096, "query_pre_attn_scalar": 256}
# What the absence of a key means, where it is not the same for all.
_UNSAID: Mapping[str, Mapping[str, Any]] = {
    "mistral": {"sliding_window": 4096},
    "smollm3": {"tie_word_embeddings": True, "rope_theta": 2e6, "use_sliding_window": False},
    "qwen2": {"use_sliding_window": False},
    "qwen3": {"use_sliding_window": False, "head_dim": 128},
    "qwen2_moe": {"use_sliding_window": False},
    "qwen3_moe": {"use_sliding_window": False},
    "gemma2": {**_GEMMA, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3_text": {**_GEMMA, "rope_theta": 1e6, "rope_local_base_freq": 10000.0},
    "olmo3": {"sliding_window": 4096},
    "stablelm": {"partial_rotary_factor": 0.25},
    "gpt_neox": {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu", "rotary_pct": 0.25},
    "gpt_oss": {"head_dim": 64, "attention_bias": True, "rope_theta": 150000.0, "sliding_window": 128},
}
_EPS: Mapping[str, float] = dict.fromkeys(
    ("llama", "mistral", "smollm3", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma2", "gemma3_text", "granite"),
    1e-6,
)
_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
_LAYER_NORMS = ("stablelm", "gpt_neox")
_ALL_WINDOWED = ("mistral", "mixtral", "phi3")
_WINDOW_PERIODS: Mapping[str, int] = {"gemma2": 2, "gemma3_text": 6, "gpt_oss": 2, "olmo3": 4}
_WINDOW_BY_TYPES = ("smollm3", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", *_WINDOW_PERIODS)
# Keys that only these values of are supported.
_ONLY: Mapping[str, tuple[object, ...]] = {
    "clip_qkv": (),
    "qk_layernorm": (False,),
    "decoder_sparse_step": (1,),
    "mlp_only_layers": ([],),
    "use_bidirectional_attention": (False,),
    "swiglu_limit": (7.0,),
    "swiglu_alpha": (1.702,),
}


def config_from_hf(config: Mapping[str, Any], *, explicit_head: bool | None = None) -> ModelConfig:
    """The configuration of a model directory, from the contents of its config.json.

    `explicit_head` tells whether the weights have an output matrix to use; None, where there are no weights, leaves it
    to the configuration. Raises ModelFileError for a key that is missing, ill-typed or out of range,
    UnsupportedModelError for a model type or value that is not supported; each names the key.
    """
    kind = model_type(config)
    text, own = text_config(config), HF_FAMILIES.get(kind)
    facts = Facts({**_UNSAID.get(kind, {}), **text} if own is None else own.usual(text), "config.json")
    for key, only in _ONLY.items():
        facts.require_only(key, *only)
    dim, num_heads = facts.integer("hidden_size", MAX_DIM), facts.integer("num_attention_heads", MAX_DIM)
    head_dim = facts.integer("head_dim", MAX_DIM, dim // num_heads)
    if "head_dim" not in facts and dim % num_heads:
        raise facts.error("num_attention_heads", f"is {num_heads}, which does not divide hidden_size {dim}")
    num_kv_heads = facts.integer("num_key_value_heads", num_heads, num_heads)
    if num_heads % num_kv_heads:
        raise facts.error("num_key_value_heads", f"is {num_kv_heads}, which does not divide {num_heads} heads")
    num_layers = facts.integer("num_hidden_layers", MAX_LAYERS)
    tied = facts.boolean("tie_word_embeddings", False) if explicit_head is None else not explicit_head
    usual = ModelConfig(
        architecture=ARCHITECTURES[kind],
        name=facts.text("_name_or_path", "") or kind,
        num_layers=num_layers,
        dim=dim,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        ffn_dim=_ffn_dim(facts, kind, dim),
        vocab_size=facts.integer("vocab_size", MAX_VOCAB),
        norm_eps=facts.number("layer_norm_eps" if kind in _LAYER_NORMS else "rms_norm_eps", 1.0, _EPS.get(kind, 1e-5)),
        windows=_windows(facts, kind, num_layers),
        tied_head=tied,
        **_rope(facts, kind, head_dim, num_layers),
        **_biases(facts, kind),
        **_experts(facts, kind),
        **_constants(facts, kind, dim),
    )
    return usual if own is None else replace(usual, **own.complete(facts, usual))


_ENCODERS = frozenset(
    (
        "deberta",
        "deberta-v2",
        "distilbert",
        "electra",
        "modernbert",
        "mpnet",
        "new",
        "nomic_bert",
    )
)


def model_type(config: Mapping[str, Any]) -> str:
    """`model_type` of the text model. Raises ModelFileError where it is missing, UnsupportedModelError for one that no
    family builds."""
    kind = text_config(config).get("model_type")
    if not isinstance(kind, str) or not kind:
        raise ModelFileError("config.json 'model_type' is missing or not a string")
    if kind in _ENCODERS:
        raise UnsupportedModelError(
            f"model_type {kind!r} is an encoder: it keeps no KV cache and generates nothing; only models that do are"
            " supported"
        )
    if kind not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"model_type {kind[:60]!r} is not supported, only {', '.join(sorted(ARCHITECTURES))}"
        )
    return kind


def _ffn_dim(facts: Facts, kind: str, dim: int) -> int:
    """Of dense layers; a mixture without any need not say it."""
    default = 4 * dim if kind == "gpt2" else None
    if "moe_intermediate_size" in facts:
        default = facts.integer("moe_intermediate_size", MAX_DIM)
    return facts.integer("intermediate_size", MAX_DIM, default)


def _windows(facts: Facts, kind: str, num_layers: int) -> tuple[int | None, ...]:
    window = facts.count("sliding_window", MAX_CONTEXT)
    if not window or not facts.boolean("use_sliding_window", True):
        return ()
    if kind in _ALL_WINDOWED:
        return (window,) * num_layers
    if kind not in _WINDOW_BY_TYPES:
        return ()
    types = facts.sequence("layer_types", num_layers)
    if types is None:
        if kind in _WINDOW_PERIODS:
            period = facts.integer("sliding_window_pattern", MAX_LAYERS, _WINDOW_PERIODS[kind])
            return tuple(window if (layer + 1) % period else None for layer in range(num_layers))
        if kind in ("qwen2", "qwen3"):
            first = facts.count("max_window_layers", MAX_LAYERS) if "max_window_layers" in facts else 28
            return tuple(window if layer >= first else None for layer in range(num_layers))
        raise facts.unsupported("use_sliding_window", "is true without layer_types, which is not supported")
    for each in types:
        if each not in ("sliding_attention", "full_attention"):
            raise facts.unsupported("layer_types", f"names {str(each)[:60]!r}, which is not supported")
    return tuple(window if each == "sliding_attention" else None for each in types)


def _rope(facts: Facts, kind: str, head_dim: int, num_layers: int) -> dict[str, Any]:
    context = facts.integer("max_position_embeddings", MAX_CONTEXT)
    original = facts.integer("original_max_position_embeddings", MAX_CONTEXT, context)
    nested = facts.part("rope_parameters") or facts.part("rope_scaling")
    local = read_base(facts, "rope_local_base_freq") if "rope_local_base_freq" in facts else None
    if nested is not None and "full_attention" in nested:
        sliding = nested.part("sliding_attention")
        if sliding is not None:
            sliding.require_only("rope_type", "default")
            local = read_base(sliding, "rope_theta", local)
        nested = nested.part("full_attention")
    inner = Facts({}, "config.json") if nested is None else nested
    base = read_base(facts, "rope_theta", read_base(facts, "rotary_emb_base", 10000.0))
    share = facts.number("partial_rotary_factor", 1.0, facts.number("rotary_pct", 1.0, 1.0))
    rope_dim = int(head_dim * inner.number("partial_rotary_factor", 1.0, share))
    if rope_dim < 2 or rope_dim % 2:
        raise facts.error("partial_rotary_factor", f"rotates {rope_dim} elements of each head, not an even number")
    scaling = scaling_from_hf(inner, rope_dim, original, context)
    if scaling is not None and scaling.kind == "dynamic":
        context = min(int(context * scaling.factor), MAX_CONTEXT)
    base = read_base(inner, "rope_theta", base)
    return {
        "context_length": context,
        "rope_dim": rope_dim,
        "rope_base": base,
        "rope_scaling": scaling,
        "local_rope_base": (local or base) if kind in ("gemma3_text", "olmo3") else None,
        "unrotated_layers": _unrotated(facts, num_layers) if kind == "smollm3" else frozenset(),
    }


def _unrotated(facts: Facts, num_layers: int) -> frozenset[int]:
    rotated = facts.sequence("no_rope_layers", num_layers)  # by its name the opposite: 1 where a layer rotates
    if rotated is not None:
        return frozenset(layer for layer, is_rotated in enumerate(rotated) if not is_rotated)
    interval = facts.integer("no_rope_layer_interval", MAX_LAYERS, 4)
    return frozenset(range(interval - 1, num_layers, interval))


def _biases(facts: Facts, kind: str) -> dict[str, Any]:
    every = kind not in ("phi3", "mistral", "mixtral") and facts.boolean("attention_bias", False)
    qkv = {
        "qwen2": True,
        "qwen2_moe": facts.boolean("qkv_bias", True),
        "stablelm": facts.boolean("use_qkv_bias", False),
    }
    output = every and kind not in ("qwen2", "qwen2_moe", "stablelm")
    return {"qkv_bias": qkv.get(kind, every), "attn_output_bias": output, "ffn_bias": facts.boolean("mlp_bias", False)}


def _experts(facts: Facts, kind: str) -> dict[str, Any]:
    if kind not in ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss"):
        return {}
    count = facts.integer("num_local_experts" if "num_local_experts" in facts else "num_experts", MAX_EXPERTS)
    own = "moe_intermediate_size" if kind.startswith("qwen") else "intermediate_size"
    return {
        "num_experts": count,
        "experts_per_token": facts.integer("num_experts_per_tok", count),
        "expert_ffn_dim": facts.integer(own, MAX_DIM),
        "shared_ffn_dim": facts.integer("shared_expert_intermediate_size", MAX_DIM) if kind == "qwen2_moe" else 0,
        "renormalize_experts": kind in ("mixtral", "gpt_oss") or facts.boolean("norm_topk_prob", False),
    }


def _constants(facts: Facts, kind: str, dim: int) -> dict[str, Any]:
    is_gemma = kind in ("gemma2", "gemma3_text")
    default = "gelu_pytorch_tanh" if is_gemma else "silu"
    key = "hidden_activation" if is_gemma else "hidden_act"
    activation = facts.text(key, default)
    if activation not in _ACTIVATIONS:
        raise facts.unsupported(key, f"is {activation[:60]!r}; only {', '.join(_ACTIVATIONS)} are supported")
    scale = facts.number("query_pre_attn_scalar", 1e6) ** -0.5 if is_gemma else None
    if kind != "granite":
        scaled = {}
    else:
        scale = facts.number("attention_multiplier", 1e6, 1.0)
        scaled = {
            "embedding_scale": facts.number("embedding_multiplier", 1e6, 1.0),
            "residual_scale": facts.number("residual_multiplier", 1e6, 1.0),
            "logit_scale": 1 / facts.number("logits_scaling", 1e6, 1.0),
        }
    return {
        "activation": _ACTIVATIONS[activation],
        "attention_scale": scale,
        "attention_soft_cap": facts.optional_number("attn_logit_softcapping", 1e6) if is_gemma else None,
        "logit_soft_cap": facts.optional_number("final_logit_softcapping", 1e6) if is_gemma else None,
        "norm_offset": 1.0 if is_gemma else 0.0,
        "parallel_residual": kind in _LAYER_NORMS and facts.boolean("use_parallel_residual", kind == "gpt_neox"),
        **({"embedding_scale": dim**0.5} if is_gemma else scaled),
    }
