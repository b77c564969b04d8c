"""The golden checkpoints as the GGUF files that a converter would make of them. Owns that format's conventions.

Tensors are taken under their canonical names and then stored as GGUF does it: rows of q and k reordered, 1 added to
Gemma's norms, fused tensors of Phi and GPT-NeoX, factors of RoPE as tensors. Keys come from config.json.
"""

import json
import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from twostroke.models.load import dequantized, load_model
from twostroke.weights.gguf_writer import write_gguf
from twostroke.weights.tensor_types import TensorType

Tensors = dict[str, np.ndarray]
INTERLEAVED = ("llama", "granite", "smollm3")
KEYS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "num_experts": "expert_count",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "attention_multiplier": "attention.scale",
    "logits_scaling": "logit_scale",
    "use_parallel_residual": "use_parallel_residual",
}


def write_family_gguf(directory: Path, path: Path, *, kind: TensorType = TensorType.F32) -> Path:
    """Write the checkpoint in `directory` as GGUF to `path`; matrices as `kind`, routers and vectors always as F32."""
    config = json.loads((directory / "config.json").read_text())
    model = load_model(directory)
    arch, weights = model.config.architecture, dequantized(model.source)
    tensors: Tensors = {name: weights(name) for name in model.program.weights}
    model.source.close()
    for change in (_interleave, _add_one, _fuse, _rope_tensors):
        change(tensors, config, arch, range(config["num_hidden_layers"]))
    kinds = {name: _kind_of(name, array, kind) for name, array in tensors.items()}
    packed = {
        name: gguf.quants.quantize(array.astype(np.float32), gguf.GGMLQuantizationType(int(kinds[name])))
        for name, array in tensors.items()
    }
    table = {name: (kinds[name], array.shape) for name, array in tensors.items()}
    write_gguf(path, _metadata(config, arch), table, lambda name: packed[name].reshape(-1).view(np.uint8))
    return path


def _kind_of(name: str, array: np.ndarray, kind: TensorType) -> TensorType:
    is_matrix = array.ndim > 1 and name.endswith(".weight") and "ffn_gate_inp" not in name
    return kind if is_matrix and array.shape[-1] % kind.block_size == 0 else TensorType.F32


def _metadata(config: dict[str, Any], arch: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"general.architecture": arch}
    for key, name in KEYS.items():
        if config.get(key) is not None:
            metadata[f"{arch}.{name}"] = config[key]
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    metadata[f"{arch}.rope.freq_base"] = rope["rope_theta"]
    metadata[f"{arch}.rope.dimension_count"] = _rope_dim(config, rope)
    if rope["rope_type"] == "linear":
        metadata[f"{arch}.rope.scaling.type"], metadata[f"{arch}.rope.scaling.factor"] = "linear", rope["factor"]
    if rope["rope_type"] == "yarn":
        metadata[f"{arch}.rope.scaling.type"], metadata[f"{arch}.rope.scaling.factor"] = "yarn", rope["factor"]
        metadata[f"{arch}.rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    if rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        metadata[f"{arch}.rope.scaling.original_context_length"] = original
        factor = config["max_position_embeddings"] / original
        metadata[f"{arch}.rope.scaling.attn_factor"] = math.sqrt(1 + math.log(factor) / math.log(original))
    if arch == "olmo2" and config.get("layer_types"):
        metadata[f"{arch}.attention.sliding_window_pattern"] = np.array(
            [kind == "sliding_attention" for kind in config["layer_types"]]
        )
    return metadata


def _interleave(tensors: Tensors, config: dict[str, Any], arch: str, layers: range) -> None:
    """Rows i and i + half of each head side by side."""
    heads = {"q": config["num_attention_heads"], "k": config.get("num_key_value_heads")}
    for name in list(tensors) if arch in INTERLEAVED else ():
        for which, count in heads.items():
            if f".attn_{which}." in name:
                array = tensors[name]
                halves = array.reshape(count, 2, -1, *array.shape[1:])
                tensors[name] = halves.swapaxes(1, 2).reshape(array.shape)


def _add_one(tensors: Tensors, config: dict[str, Any], arch: str, layers: range) -> None:
    for name in list(tensors) if arch.startswith("gemma") else ():
        if name.endswith("norm.weight"):
            tensors[name] = tensors[name] + 1


def _fuse(tensors: Tensors, config: dict[str, Any], arch: str, layers: range) -> None:
    def join(layer: int, names: tuple[str, ...], fused: str) -> None:
        for kind in ("weight", "bias"):
            if f"blk.{layer}.{names[0]}.{kind}" in tensors:
                parts = [tensors.pop(f"blk.{layer}.{name}.{kind}") for name in names]
                tensors[f"blk.{layer}.{fused}.{kind}"] = np.concatenate(parts)

    for layer in layers:
        if arch in ("phi3", "gptneox"):
            join(layer, ("attn_q", "attn_k", "attn_v"), "attn_qkv")
        if arch == "qwen2moe":
            tensors[f"blk.{layer}.ffn_gate_inp_shexp.weight"] = tensors[f"blk.{layer}.ffn_gate_inp_shexp.weight"][0]
        if arch == "phi3":
            join(layer, ("ffn_gate", "ffn_up"), "ffn_up")


def _rope_tensors(tensors: Tensors, config: dict[str, Any], arch: str, layers: range) -> None:
    rope = config["rope_parameters"]
    for length in ("short", "long"):
        if f"{length}_factor" in rope:
            tensors[f"rope_factors_{length}.weight"] = np.array(rope[f"{length}_factor"], np.float32)
    if rope.get("rope_type") == "llama3":
        dim = _rope_dim(config, rope)
        frequencies = [rope["rope_theta"] ** (-2 * pair / dim) for pair in range(dim // 2)]
        tensors["rope_freqs.weight"] = np.array([_llama3(rope, frequency) for frequency in frequencies])


def _rope_dim(config: dict[str, Any], rope: dict[str, Any]) -> int:
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return int(head_dim * rope.get("partial_rotary_factor", 1))


def _llama3(rope: dict[str, Any], frequency: float) -> float:
    """What Llama 3.1 divides a frequency (radians a token) by: 1 for fast ones, the factor for slow ones."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
    share = min(max((turns - low) / (high - low), 0.0), 1.0)
    return 1 / (share + (1 - share) / rope["factor"])
