"""Tiny random models of every family as real GGUF files, in any tensor type, tokenizer included. Owns test data only.

The tensors are those of the family's program; the golden checkpoints of `transformers` prove that the program is right.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tests.tiny import TinyModel, packed_matrix, write_sizes, write_tokenizer

from twostroke.models.gguf_config import config_from_gguf
from twostroke.models.registry import build_program

EXPERTS: Mapping[str, Any] = {"expert_count": 6, "expert_used_count": 2}
# Keys that make each family what it is; windows are short, so that prompts of tests are longer.
KEYS: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": {"attention.sliding_window": 16},
    "mixtral": EXPERTS,
    "smollm3": {},
    "qwen2": {},
    "qwen2moe": EXPERTS,
    "qwen3": {},
    "qwen3moe": EXPERTS,
    "gemma2": {"attention.sliding_window": 16},
    "gemma3": {"attention.sliding_window": 16},
    "phi3": {"attention.sliding_window": 24},
    "granite": {"embedding_scale": 4.0, "residual_scale": 0.5, "attention.scale": 0.25, "logit_scale": 2.0},
    "olmo2": {},
    "olmoe": EXPERTS,
    "stablelm": {},
    "gptneox": {},
    "gpt-oss": {
        **EXPERTS,
        "attention.sliding_window": 16,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 64,
    },
}
ARCHITECTURES = {"mistral": "llama", "mixtral": "llama"}
_BIASED = {
    "qwen2": ("attn_q",),
    "qwen2moe": ("attn_q",),
    "gptneox": ("attn_q", "attn_output", "ffn_up"),
    "gpt-oss": ("attn_q", "attn_output"),
}
_DEEP = {"smollm3": 4, "gemma3": 6}  # layers until one differs from the others


def write_tiny_family(path: str | Path, family: str, **fields: object) -> Path:
    """Write a random model of a family of `KEYS` and return its path; `fields` are those of `tests.tiny.TinyModel`."""
    arch = ARCHITECTURES.get(family, family)
    base = 1e6 if family == "gemma3" else 1e4  # its windowed layers rotate by another one
    model = TinyModel(arch=arch, **{"num_layers": _DEEP.get(family, 2), "rope_base": base, **fields})  # type: ignore[arg-type]
    keys = {**KEYS[family], "attention.layer_norm_epsilon": 1e-5}
    if "expert_count" in keys:
        keys["expert_feed_forward_length"] = model.size_of_ffn
    if family == "qwen2moe":
        keys["expert_shared_feed_forward_length"] = model.size_of_ffn
    writer = gguf.GGUFWriter(str(path), arch)
    write_sizes(writer, model)
    write_tokenizer(writer, model)
    for key, value in keys.items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
        add(f"{arch}.{key}", value)
    rng = np.random.default_rng(model.seed)
    for name, shape in _shapes(model, family, keys).items():
        kind = model.type_of(name)
        if len(shape) == 1 or name.endswith(".bias") or "ffn_gate_inp" in name:
            writer.add_tensor(name, _floats(name, shape, rng))
        else:
            flat = packed_matrix(kind, (int(np.prod(shape[:-1])), shape[-1]), _scale(name, shape[-1]), rng)
            writer.add_tensor(name, flat.reshape(*shape[:-1], -1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(path)


def _shapes(model: TinyModel, family: str, keys: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of the file: the program's weights, where the format fuses some of them fused."""
    sizes: dict[str, Any] = {
        "block_count": model.num_layers,
        "context_length": model.context,
        "embedding_length": model.dim,
        "feed_forward_length": model.size_of_ffn,
        "attention.head_count": model.num_heads,
        "attention.head_count_kv": model.num_kv_heads,
        "attention.key_length": model.size_of_head,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    metadata = {f"{model.arch}.{key}": value for key, value in {**sizes, **keys}.items()}
    given: dict[str, tuple[int, ...]] = {"token_embd.weight": (model.vocab, model.dim)}
    given |= {f"blk.0.{name}.bias": (1,) for name in _BIASED.get(family, ())}
    if not model.tied:
        given["output.weight"] = given["token_embd.weight"]
    program = build_program(config_from_gguf({"general.architecture": model.arch, **metadata}, given))
    shapes = {name: weight.shape for name, weight in program.weights.items()}
    for layer in range(model.num_layers if family == "phi3" else 0):
        rows, columns = shapes.pop(f"blk.{layer}.ffn_gate.weight")
        shapes[f"blk.{layer}.ffn_up.weight"] = (2 * rows, columns)
    return shapes


def _floats(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    values = rng.standard_normal(shape)
    if "ffn_gate_inp" in name and name.endswith(".weight"):
        return (2 * shape[-1] ** -0.5 * values).astype(np.float32)
    is_scale = name.endswith("norm.weight")
    return (1 + 0.1 * values if is_scale else 0.2 * values).astype(np.float32)


def _scale(name: str, columns: int) -> float:
    if name in ("token_embd.weight", "output.weight"):
        return 3 * columns**-0.5
    return (2.0 if "output" in name else 1.0 if "down" in name else 1.5) * columns**-0.5
