"""A tiny GGUF model of `tests.tiny` as the Hugging Face directory it could have come from. Owns test data only."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.tiny import CHAT_TEMPLATE, CONTROL_TOKENS, tiny_vocabulary
from tests.weights.hf_directory import Tensor, bf16, write_directory

from twostroke.models.load import dequantized, load_model

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write_tiny_directory(
    path: Path,
    gguf: Path,
    *,
    files: Mapping[str, Mapping[str, Any] | None] | None = None,
    in_bf16: bool = False,
    num_shards: int = 1,
) -> Path:
    """Write the qwen2 model in `gguf` to the directory `path`. `files` adds keys to JSON files, or leaves files
    out where None. `in_bf16` cuts matrices to BF16.
    """
    model = load_model(gguf)
    weights, config = dequantized(model.source), model.config
    tensors = {_name(name): weights(name) for name in model.program.weights}
    model.source.close()
    stored = {name: bf16(values) if in_bf16 and values.ndim > 1 else values for name, values in tensors.items()}
    tokens, merges = tiny_vocabulary(config.vocab_size)
    sizes = {
        "model_type": config.architecture,
        "vocab_size": config.vocab_size,
        "hidden_size": config.dim,
        "intermediate_size": config.ffn_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": float(np.float32(config.norm_eps)),
        "rope_theta": 10000.0,
        "tie_word_embeddings": "lm_head.weight" not in tensors,
    }
    written: dict[str, Mapping[str, Any]] = {
        "config.json": sizes,
        "tokenizer.json": _tokenizer(tokens, merges),
        "tokenizer_config.json": {"chat_template": CHAT_TEMPLATE, "eos_token": "<|im_end|>"},
    }
    write_directory(path, _shards(stored, num_shards), sizes)
    for name, keys in {**{key: {} for key in written}, **(files or {})}.items():
        if keys is not None:
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text(json.dumps({**written.get(name, {}), **keys}))
        else:
            (path / name).unlink(missing_ok=True)
    return path


def _shards(tensors: Mapping[str, Tensor], count: int) -> dict[str, dict[str, Tensor]]:
    if count == 1:
        return {"model.safetensors": dict(tensors)}
    names = list(tensors)
    return {
        f"model-{number + 1:05}-of-{count:05}.safetensors": {name: tensors[name] for name in names[number::count]}
        for number in range(count)
    }


def _name(name: str) -> str:
    if name in _OUTER:
        return _OUTER[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{_LAYER[part]}.{kind}"


def _tokenizer(tokens: list[str], merges: list[str]) -> dict[str, Any]:
    first = len(tokens) - len(CONTROL_TOKENS)
    added = [{"id": first + i, "content": text, "special": True} for i, text in enumerate(CONTROL_TOKENS)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    split = {"type": "Split", "pattern": {"Regex": _SPLIT}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [{**flags, **token} for token in added],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens[:first])}, "merges": merges},
    }
