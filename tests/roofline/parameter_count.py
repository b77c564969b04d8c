"""Parameters of a model from its config.json, counted by hand: a second opinion on facts and on the families.

Matrices only; norms and biases are far below the tolerance. Independent of programs on purpose.
"""

from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]

_PLAIN_FFN = ("phi", "gpt2", "gpt_neox", "xlm-roberta")
_MLA = ("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite")
_HYBRID = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
_GPT2 = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}


def count(config: Facts) -> tuple[int, int]:
    """All parameters, and those that one token uses: of its routed experts only, embedding and output included."""
    facts = {_GPT2.get(key, key): value for key, value in config.items()}
    kind, dim = facts["model_type"], facts["hidden_size"]
    tables = facts["vocab_size"] * dim * (1 if facts.get("tie_word_embeddings", kind == "gpt2") else 2)
    total = active = (
        tables + facts.get("n_positions", facts["max_position_embeddings"] if kind == "xlm-roberta" else 0) * dim
    )
    own = facts.get("hidden_size_per_layer_input", 0) * facts["num_hidden_layers"]
    total, active = (each + own * (facts["vocab_size"] + 3 * dim) for each in (total, active))
    for layer in range(facts["num_hidden_layers"]):
        mixing = _mixing(facts, kind, layer)
        every, used = _feed_forward(facts, kind, layer)
        total += mixing + every
        active += mixing + used
    return total, active


def tables(config: Facts) -> int:
    """Parameters of the embedding alone."""
    return int(config["vocab_size"] * config.get("hidden_size", config.get("n_embd")))


def _mixing(facts: Facts, kind: str, layer: int) -> int:
    dim, heads = facts["hidden_size"], facts["num_attention_heads"]
    kv_heads, head_dim = facts.get("num_key_value_heads", heads), facts.get("head_dim", dim // heads)
    if kind in _MLA:
        nope, rope, value, rank = (
            facts[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank")
        )
        low = facts.get("q_lora_rank")
        queries = low * (dim + heads * (nope + rope)) if low else dim * heads * (nope + rope)
        return queries + dim * (rank + rope) + rank * heads * (nope + value) + heads * value * dim
    if kind in _HYBRID and (layer + 1) % facts["full_attention_interval"]:
        keys = facts["linear_num_key_heads"] * facts["linear_key_head_dim"]
        values = facts["linear_num_value_heads"] * facts["linear_value_head_dim"]
        gates = 2 * dim * facts["linear_num_value_heads"]
        return dim * (2 * keys + 2 * values) + gates + values * dim
    if kind in _HYBRID:  # the queries have a gate of their own size
        return dim * (3 * heads + 2 * kv_heads) * head_dim
    shares = layer >= facts["num_hidden_layers"] - facts.get("num_kv_shared_layers", 0)
    if kind == "gemma4_text" and not facts["attention_k_eq_v"]:
        size = facts["global_head_dim"] if facts["layer_types"][layer] == "full_attention" else head_dim
        return dim * (2 * heads + (0 if shares else 2 * kv_heads)) * size
    if kind == "gemma4_text" and facts["layer_types"][layer] == "full_attention":  # keys serve as values
        return dim * (2 * heads + facts["num_global_key_value_heads"]) * facts["global_head_dim"]
    return dim * (2 * heads + 2 * kv_heads) * head_dim


def _feed_forward(facts: Facts, kind: str, layer: int) -> tuple[int, int]:
    """Of one layer: all parameters, and those in use."""
    dim, size = facts["hidden_size"], facts.get("intermediate_size", 0)
    if facts.get("use_double_wide_mlp") and layer >= facts["num_hidden_layers"] - facts["num_kv_shared_layers"]:
        size *= 2
    if kind in _PLAIN_FFN:
        return (both := 2 * dim * (size or 4 * dim)), both
    experts = facts.get("n_routed_experts", facts.get("num_local_experts", facts.get("num_experts", 0)))
    dense = 3 * dim * facts.get("intermediate_size_mlp", size)
    is_dense = layer < facts.get("first_k_dense_replace", 0)
    if not experts or is_dense or (layer + 1) % facts.get("interleave_moe_layer_step", 1):
        return dense, dense
    each = 3 * dim * facts.get("moe_intermediate_size", size)
    shared = each * facts.get("n_shared_experts", 1 if kind == "llama4_text" else 0)
    shared += 3 * dim * facts.get("shared_expert_intermediate_size", 0)
    shared += dense if kind == "gemma4_text" else 0
    chosen = facts.get("num_experts_per_tok", facts.get("top_k_experts"))
    return experts * (each + dim) + shared, chosen * each + experts * dim + shared
