"""The text model of a checkpoint that holds more: vision or audio beside a text family that is run.

Owns which of these wrappers are known, where their text configuration is, and what of their tensors is passed over.
For text alone, all three positions of multimodal RoPE (Qwen-VL) are the same, so that it is the plain one.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from twostroke.errors import ModelFileError

_LLAMA: Mapping[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
}
_MISTRAL = {**_LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072}
_QWEN = {**_LLAMA, "vocab_size": 151936, "intermediate_size": 22016, "max_position_embeddings": 32768}
_GEMMA = {
    **_LLAMA,
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
}
# By model_type: the text's, where its own configuration does not say, and what the absence of its keys means, since
# `transformers` writes only those that differ from its defaults.
_WRAPPERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gemma3": ("gemma3_text", _GEMMA),
    "mistral3": ("mistral", _MISTRAL),
    **dict.fromkeys(("llava", "llava_next", "idefics3", "smolvlm", "voxtral"), ("llama", _LLAMA)),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "internvl"), ("qwen2", _QWEN)),
    "qwen3_vl": ("qwen3", _QWEN),
    **{kind: (f"{kind}_text", {}) for kind in ("gemma4", "llama4", "qwen3_5", "qwen3_5_moe")},
}
_TEXT_TYPES = {"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3"}
_TOWERS = frozenset(
    {
        *("vision_tower", "vision_model", "visual", "image_newline", "audio_tower", "audio_model"),
        *("multi_modal_projector", "mm_projector", "connector", "modality_projection"),
    }
)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What config.json says of the text model: itself, or of a known wrapper the part under `text_config`.

    Raises ModelFileError where that is no object.
    """
    wrapper = _WRAPPERS.get(str(config.get("model_type")))
    if wrapper is None:
        return config
    kind, unsaid = wrapper
    inner = config.get("text_config", config)
    if not isinstance(inner, dict):
        raise ModelFileError("config.json 'text_config' is not an object")
    said = inner.get("model_type")
    text = {**unsaid, **inner, "model_type": kind if inner is config or not said else _TEXT_TYPES.get(said, said)}
    if "tie_word_embeddings" in config:
        text["tie_word_embeddings"] = config["tie_word_embeddings"]
    scaling = text.get("rope_scaling")
    if isinstance(scaling, dict) and "mrope" in (scaling.get("type"), scaling.get("rope_type")):
        text["rope_scaling"] = None
    return text


def passed_over(config: Mapping[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    """A line that says which of the unused tensors `names` are of a wrapper's other models, if any are."""
    if str(config.get("model_type")) not in _WRAPPERS:
        return ()
    towers: dict[str, int] = {}
    for name in names:
        tower = next((part for part in name.split(".")[:2] if part in _TOWERS), None)
        if tower is not None:
            towers[tower] = towers.get(tower, 0) + 1
    if not towers:
        return ()
    counts = " and ".join(f"{count:,} of {tower}" for tower, count in sorted(towers.items()))
    return (f"{config['model_type']} runs as a text model; tensors passed over: {counts}",)
