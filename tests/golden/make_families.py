"""Makes the tiny random checkpoints under families/, each with the logits that `transformers` gives for a prompt.

Run with a Python that has torch, transformers and safetensors; the tests need none of them. Prompts are longer than
every window. `golden.npz` holds `ids` (num_tokens,) and `logits` (num_tokens, vocab_size), and for llama logits under
the name of each RoPE scaling that `scalings.json` lists.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

FOLDER = Path(__file__).parent / "families"
NUM_TOKENS = 40
SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
SMALL = {**SIZES, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
MOE = {**SMALL, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
UNTIED, TIED = {"tie_word_embeddings": False}, {"tie_word_embeddings": True}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.25, 1.5, 2.0, 2.0, 3.0],
    "long_factor": [1.0, 2.0, 3.0, 4.0, 6.0, 8.0],
    "partial_rotary_factor": 0.75,
}
LATENT = {
    **SMALL, **UNTIED, "num_key_value_heads": 2, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16,
    "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.5,
    "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.9},
}  # fmt: skip
HYBRID = {
    **SMALL, **TIED, "num_hidden_layers": 4, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 8, "linear_value_head_dim": 6, "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-3,  # far above rounding, which the norm after the recurrence would else raise to 1e-3
}  # fmt: skip
HYBRID_MOE = {**HYBRID, **UNTIED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
              "shared_expert_intermediate_size": 24}  # fmt: skip
MROPE = {"mrope_section": [1, 1, 0], "mrope_interleaved": True}

# Folder: (model_type, configuration).
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {**SMALL, **UNTIED, "attention_bias": True, "mlp_bias": True}),
    "mistral": ("mistral", {**SMALL, **UNTIED, "sliding_window": 16, "head_dim": 32}),
    "mixtral": (
        "mixtral",
        {**SMALL, **UNTIED, "num_local_experts": 4, "intermediate_size": 32, "sliding_window": None},
    ),
    "smollm3": ("smollm3", {**SMALL, **TIED, "num_hidden_layers": 4}),
    "qwen2": ("qwen2", {**SIZES, **TIED}),
    "qwen3": ("qwen3", {**SMALL, **TIED, "head_dim": 32}),
    "qwen2moe": ("qwen2_moe", {**MOE, **UNTIED, "shared_expert_intermediate_size": 64}),
    "qwen3moe": ("qwen3_moe", {**MOE, **UNTIED, "head_dim": 32, "norm_topk_prob": True}),
    "gemma2": (
        "gemma2",
        {**SIZES, **TIED, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 16,
         "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    ),
    "gemma3": (
        "gemma3_text",
        {**SMALL, **TIED, "num_hidden_layers": 6, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 16},
    ),
    "phi3": ("phi3", {**SIZES, **UNTIED, "sliding_window": 24, "original_max_position_embeddings": 16,
                      "rope_parameters": LONG}),
    "granite": (
        "granite",
        {**SIZES, **TIED, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.125,
         "logits_scaling": 8.0},
    ),
    "olmo2": ("olmo2", {**SIZES, **UNTIED}),
    "olmo3": (
        "olmo3",
        {**SMALL, **UNTIED, "num_hidden_layers": 4, "sliding_window": 16,
         "rope_parameters": {"full_attention": YARN, "sliding_attention": PLAIN}},
    ),
    "olmoe": ("olmoe", {**MOE, **UNTIED, "intermediate_size": 32}),
    "stablelm": ("stablelm", {**SIZES, **UNTIED, "use_qkv_bias": True, "partial_rotary_factor": 0.5}),
    "stablelm-parallel": ("stablelm", {**SIZES, **UNTIED, "use_parallel_residual": True}),
    "gptneox": ("gpt_neox", {**SIZES, **UNTIED}),
    "gptneox-sequential": ("gpt_neox", {**SIZES, **UNTIED, "use_parallel_residual": False, "hidden_size": 32}),
    "gpt-oss": (
        "gpt_oss",
        {**SMALL, **UNTIED, "num_local_experts": 3, "num_experts_per_tok": 2, "head_dim": 16,
         "sliding_window": 16, "rope_parameters": {**YARN, "truncate": False}},
    ),
    "cohere": ("cohere", {**SIZES, **TIED, "logit_scale": 0.25}),
    "cohere-plus": ("cohere", {**SIZES, **TIED, "logit_scale": 0.25, "use_qk_norm": True}),
    "cohere2": ("cohere2", {**SMALL, **TIED, "num_hidden_layers": 4, "sliding_window": 16, "logit_scale": 0.5}),
    "phi2": ("phi", {**SIZES, **UNTIED, "partial_rotary_factor": 0.5}),
    "glm": ("glm", {**SIZES, **UNTIED, "head_dim": 16, "attention_bias": True}),
    "glm4": ("glm4", {**SIZES, **UNTIED, "head_dim": 16, "attention_bias": True}),
    "glm4moe": (
        "glm4_moe",
        {**MOE, **UNTIED, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "head_dim": 16,
         "use_qk_norm": True, "attention_bias": True, "routed_scaling_factor": 1.5, "num_hidden_layers": 2},
    ),
    "glm4moelite": (
        "glm4_moe_lite",
        {**{key: value for key, value in LATENT.items() if key != "first_k_dense_replace"}, "q_lora_rank": 24,
         "mlp_layer_types": ["dense", "sparse"]},
    ),
    "minimax-m2": (
        "minimax_m2",
        {**SMALL, **UNTIED, "head_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 24,
         "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5}},
    ),
    "gpt2": (
        "gpt2",
        {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "bos_token_id": 1,
         "eos_token_id": 2},
    ),
    "llama4": (
        "llama4_text",
        {**SMALL, **UNTIED, "num_hidden_layers": 4, "head_dim": 16, "num_local_experts": 4, "intermediate_size": 24,
         "intermediate_size_mlp": 48, "interleave_moe_layer_step": 2, "attention_chunk_size": 16, "floor_scale": 8,
         "attn_scale": 0.3, "num_experts_per_tok": 2},
    ),
    "ministral3": (
        "ministral3",
        {**SMALL, **UNTIED, "head_dim": 16, "sliding_window": None,
         "rope_parameters": {**YARN, "llama_4_scaling_beta": 0.4, "mscale": 1.0, "mscale_all_dim": 1.0}},
    ),
    "gemma4": (
        "gemma4_text",
        {**SMALL, **TIED, "num_hidden_layers": 4, "head_dim": 8, "global_head_dim": 16, "num_attention_heads": 4,
         "num_key_value_heads": 2, "num_global_key_value_heads": 1, "attention_k_eq_v": True, "sliding_window": 16,
         "layer_types": ["sliding_attention", "full_attention"] * 2, "hidden_size_per_layer_input": 0,
         "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16,
         "intermediate_size": 32, "final_logit_softcapping": 3.0},
    ),
    "deepseek2": ("deepseek_v2", {**LATENT, "q_lora_rank": 24, "topk_method": "group_limited_greedy"}),
    "deepseek2-lite": (
        "deepseek_v2", {**LATENT, "q_lora_rank": None, "topk_method": "greedy", "rope_parameters": PLAIN},
    ),
    "deepseek3": ("deepseek_v3", {**LATENT, "q_lora_rank": 24, "num_nextn_predict_layers": 0}),
    "qwen3next": ("qwen3_next", {**HYBRID_MOE, "partial_rotary_factor": 0.25}),
    "qwen35": ("qwen3_5_text", {**HYBRID, "rope_parameters": {**PLAIN, **MROPE, "partial_rotary_factor": 0.25}}),
    "qwen35moe": (
        "qwen3_5_moe_text", {**HYBRID_MOE, "rope_parameters": {**PLAIN, **MROPE, "partial_rotary_factor": 0.25}},
    ),
}  # fmt: skip

# Of llama: name: (what replaces rope_parameters, the context it is fixed for).
SCALINGS: dict[str, tuple[dict[str, Any], int]] = {
    "linear": ({"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}, 64),
    "dynamic": ({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0, "max_position_embeddings": 24}, 40),
    "yarn": (YARN, 64),
    "yarn, own magnitude": ({**YARN, "attention_factor": 1.5, "beta_fast": 4.0, "beta_slow": 0.5}, 64),
    "yarn, mscale": ({**YARN, "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False}, 64),
    "llama3": (
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 16, "rope_theta": 10000.0},
        64,
    ),
}  # fmt: skip


CENTRED = ("gemma2", "gemma3", "qwen3_next", "qwen3_5")  # norms of 1 + w
INPUTS_FIRST = ("GptOss", "Llama4")  # experts with inputs as rows; every matrix of GPT-2


def fill(model: torch.nn.Module, kind: str) -> None:
    """Random weights that spread logits over a few units; norms about 1, where 1 is added about 0."""
    generator = torch.Generator().manual_seed(0)
    wanted = ("correction_bias", "layer_scalar")
    buffers = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(wanted)]
    for name, weight in [*model.named_parameters(), *buffers]:
        values = torch.randn(weight.shape, generator=generator)
        if ("norm" in name or ".ln_" in name) and name.endswith("weight"):
            is_centred = kind.startswith(CENTRED) and "linear_attn" not in name
            values = 0.2 * values + (0.0 if is_centred else 1.0)
        elif name.endswith(("scale", "layer_scalar")):
            values = 1 + 0.2 * values
        elif name.endswith("bias") or weight.dim() == 1:
            values = 0.5 * values
        elif "embed" in name or ".wte" in name or ".wpe" in name:
            values = values / 4
        else:
            of_experts = "experts." in name and type(model).__name__.startswith(INPUTS_FIRST)
            fan_in = weight.shape[-2] if of_experts or kind == "gpt2" else weight.shape[-1]
            gain = 1.0 if kind.startswith(CENTRED[2:]) else 2.0  # recurrences amplify rounding
            values = gain * values * fan_in**-0.5
        weight.data = values


def logits_of(config: Any, ids: torch.Tensor, state: dict[str, torch.Tensor]) -> np.ndarray:
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    model.load_state_dict(state)
    with torch.no_grad():
        logits: np.ndarray = model(ids[None]).logits[0].numpy()
    return logits


def make(folder: str) -> None:
    kind, fields = FAMILIES[folder]
    if kind == "gpt_neox":
        fields = {key: value for key, value in fields.items() if key != "num_key_value_heads"}
    config = AutoConfig.for_model(kind, **fields)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    fill(model, kind)
    model.tie_weights()
    model.save_pretrained(FOLDER / folder)
    (FOLDER / folder / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(0, fields["vocab_size"], (NUM_TOKENS,), generator=torch.Generator().manual_seed(1))
    state = model.state_dict()
    golden = {"ids": ids.numpy(), "logits": logits_of(config, ids, state)}
    if folder == "llama":
        for name, (rope, _) in SCALINGS.items():
            rope = dict(rope)
            more = {"max_position_embeddings": rope.pop("max_position_embeddings", 64), "rope_parameters": rope}
            golden[name] = logits_of(AutoConfig.for_model(kind, **{**fields, **more}), ids, state)
        (FOLDER / folder / "scalings.json").write_text(json.dumps(SCALINGS, indent=1) + "\n")
    if folder == "phi3":
        golden["short"] = logits_of(
            AutoConfig.for_model(kind, **{**fields, "rope_parameters": {**LONG, "factor": 4.0},
                                          "original_max_position_embeddings": 64}), ids, state
        )  # fmt: skip
    np.savez_compressed(FOLDER / folder / "golden.npz", **golden)
    sizes = sum(file.stat().st_size for file in (FOLDER / folder).iterdir())
    print(f"{folder}: {sizes:,} bytes, logits std {golden['logits'].std():.2f}")


if __name__ == "__main__":
    for each in sys.argv[1:] or FAMILIES:
        make(each)
