"""A Hugging Face model as GGUF has it: keys, names and the order of rows. Owns these conventions and the proof that the
keys describe the same model; writes no file.

Source of the conventions: the format's specification and the tensors and keys of llama.cpp's converter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.config import ModelConfig
from twostroke.models.gguf_config import ROPE_FACTORS, config_from_gguf
from twostroke.models.load import Model
from twostroke.weights.dequantize import dequantize
from twostroke.weights.source import TensorInfo
from twostroke.weights.tensor_types import TensorType

Bytes = npt.NDArray[np.uint8]
_INTERLEAVED = ("llama", "granite", "smollm3")  # rows of q and k are reordered so that rotated pairs lie side by side
_LAYER_NORMS = ("stablelm", "gptneox")
_FUSED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "phi3": {"attn_qkv": ("attn_q", "attn_k", "attn_v"), "ffn_up": ("ffn_gate", "ffn_up")},
    "gptneox": {"attn_qkv": ("attn_q", "attn_k", "attn_v")},
}


def gguf_keys(config: ModelConfig) -> dict[str, Any]:
    """The model's keys, without those of its tokenizer. Raises UnsupportedModelError for what the format cannot say."""
    arch = config.architecture
    norm = "layer_norm_epsilon" if arch in _LAYER_NORMS else "layer_norm_rms_epsilon"
    keys: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "context_length": config.context_length,
        "embedding_length": config.dim,
        "block_count": config.num_layers,
        "feed_forward_length": config.ffn_dim,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        f"attention.{norm}": np.float32(config.norm_eps),
        "rope.dimension_count": config.rope_dim,
        "rope.freq_base": np.float32(config.rope_base),
        **_experts(config),
        **_scaling(config),
        **_constants(config),
    }
    if config.windows:
        keys["attention.sliding_window"] = next(window for window in config.windows if window is not None)
    named: dict[str, Any] = {"general.architecture": arch, "general.type": "model", "general.name": config.name}
    named |= {f"{arch}.{key}": value for key, value in keys.items()}
    if config.windows and _read(named, config).windows != config.windows:
        named[f"{arch}.attention.sliding_window_pattern"] = np.array([window is not None for window in config.windows])
    _check(config, _read(named, config))
    return named


def _experts(config: ModelConfig) -> dict[str, Any]:
    if not config.num_experts:
        return {}
    keys: dict[str, Any] = {"expert_count": config.num_experts, "expert_used_count": config.experts_per_token}
    keys["expert_feed_forward_length"] = config.expert_ffn_dim
    if config.shared_ffn_dim:
        keys["expert_shared_feed_forward_length"] = config.shared_ffn_dim
    if config.renormalize_experts == (config.architecture in ("qwen2moe", "olmoe")):
        keys["expert_weights_norm"] = config.renormalize_experts
    return keys


def _scaling(config: ModelConfig) -> dict[str, Any]:
    scaling = config.rope_scaling
    keys: dict[str, Any] = {}
    if config.local_rope_base is not None and config.architecture == "gemma3":
        keys["rope.freq_base_swa"] = np.float32(config.local_rope_base)
    if scaling is None or scaling.kind == "llama3":
        return keys
    if scaling.kind == "dynamic":
        raise UnsupportedModelError("RoPE scaling of kind 'dynamic' cannot be written as GGUF, which has none")
    keys |= {"rope.scaling.type": scaling.kind, "rope.scaling.factor": np.float32(scaling.factor)}
    if scaling.kind in ("yarn", "longrope"):
        keys["rope.scaling.original_context_length"] = scaling.original_context
    if scaling.kind == "yarn":
        keys["rope.scaling.yarn_beta_fast"] = np.float32(scaling.beta_fast)
        keys["rope.scaling.yarn_beta_slow"] = np.float32(scaling.beta_slow)
        if scaling.magnitude is not None:
            keys["rope.scaling.yarn_attn_factor"] = np.float32(
                scaling.magnitude / replace(scaling, magnitude=None).final_magnitude()
            )
    if scaling.kind == "longrope":
        keys["rope.scaling.attn_factor"] = np.float32(scaling.final_magnitude())
    return keys


def _constants(config: ModelConfig) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    scale = config.attention_scale
    if scale is not None and not np.isclose(scale, config.head_dim**-0.5) and not config.architecture.startswith("gem"):
        keys["attention.scale"] = np.float32(scale)
    if config.architecture.startswith("granite"):
        keys["embedding_scale"] = np.float32(config.embedding_scale)
        keys["residual_scale"] = np.float32(config.residual_scale)
        keys["logit_scale"] = np.float32(1 / config.logit_scale)
    if config.attention_soft_cap is not None:
        keys["attn_logit_softcapping"] = np.float32(config.attention_soft_cap)
    if config.logit_soft_cap is not None:
        keys["final_logit_softcapping"] = np.float32(config.logit_soft_cap)
    if config.architecture in _LAYER_NORMS:
        keys["use_parallel_residual"] = config.parallel_residual
    return keys


def _read(keys: Mapping[str, Any], config: ModelConfig) -> ModelConfig:
    """What a reader of the format makes of the keys."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (config.vocab_size, config.dim)}
    if not config.tied_head:
        shapes["output.weight"] = shapes["token_embd.weight"]
    biases = {"attn_q": config.qkv_bias, "attn_output": config.attn_output_bias, "ffn_up": config.ffn_bias}
    shapes |= {f"blk.0.{name}.bias": (1,) for name, there in biases.items() if there}
    if config.rope_scaling is not None and config.rope_scaling.kind == "longrope":
        shapes["rope_factors_long.weight"] = (config.rope_dim // 2,)
    if config.rope_scaling is not None and config.rope_scaling.kind == "llama3":
        shapes[ROPE_FACTORS] = (config.rope_dim // 2,)
    plain = {key: value.item() if isinstance(value, np.floating) else value for key, value in keys.items()}
    return config_from_gguf(plain, shapes)


def _check(config: ModelConfig, read: ModelConfig) -> None:
    """Raises UnsupportedModelError for a field that a reader would take otherwise."""
    conventions = ("name", "rope_pairing", "norm_offset", "rope_factors", "rope_scaling", "rope_context")
    expected, found = (
        replace(
            each,
            attention_scale=each.attention_scale or each.head_dim**-0.5,
            local_rope_base=each.local_rope_base if each.windows else None,
        )
        for each in (config, read)
    )
    for field in fields(ModelConfig):
        ours, theirs = getattr(expected, field.name), getattr(found, field.name)
        is_close = isinstance(ours, float) and isinstance(theirs, float) and abs(ours - theirs) <= 1e-6 * abs(ours)
        if field.name not in conventions and ours != theirs and not is_close:
            what = f"{config.architecture} with {field.name} {ours!r}"
            raise UnsupportedModelError(f"{what} cannot be written as GGUF, which would mean {theirs!r}")
    _check_rotation(config, read)


def _check_rotation(config: ModelConfig, read: ModelConfig) -> None:
    ours, theirs = config.rope_scaling, read.rope_scaling
    if ours is None or ours.kind in ("llama3", "longrope"):
        return
    factors = [
        None if each is None else each.divisors(config.rope_dim, config.rope_base, config.context_length)
        for each in (ours, theirs)
    ]
    same = theirs is not None and None not in factors and np.allclose(factors[0], factors[1], rtol=1e-6)  # type: ignore[arg-type]
    if theirs is None or not same or not np.isclose(ours.final_magnitude(), theirs.final_magnitude(), rtol=1e-6):
        raise UnsupportedModelError(f"RoPE scaling of kind {ours.kind!r} cannot be written as GGUF for these constants")


@dataclass(frozen=True, slots=True)
class _Stored:
    """A tensor of the file: canonical tensors whose rows follow each other, and what is done to each."""

    info: TensorInfo
    parts: tuple[str, ...]
    heads: tuple[int, ...] = ()  # of each part whose rows are reordered
    added: float = 0.0


class GGUFForm:
    """A `WeightSource` of the tensors that a GGUF file of a directory's model holds. Closing the model closes it."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._orders = {} if not hasattr(model.source, "input_orders") else dict(model.source.input_orders)
        self._made = _rope_tensors(model.config)
        stored = {name: self._describe(name, parts) for name, parts in _layout(model).items()}
        self._stored = stored
        self.tensors = {name: each.info for name, each in stored.items()}
        self.tensors |= {
            name: TensorInfo(name, values.shape, TensorType.F32, 0, values.nbytes)
            for name, values in self._made.items()
        }

    @property
    def names(self) -> Iterable[str]:
        return self.tensors.keys()

    def info(self, name: str) -> TensorInfo:
        """Shape, type and size as given here. Raises ModelFileError when there is none of that name."""
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelFileError(f"tensor {name!r} is missing") from None

    def data(self, name: str) -> Bytes:
        """Packed bytes, (num_bytes,) uint8."""
        if name in self._made:
            return self._made[name].reshape(-1).view(np.uint8)
        each = self._stored[name]
        heads = each.heads or (0,) * len(each.parts)
        parts = [self._rows(part, count, each) for part, count in zip(each.parts, heads, strict=True)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def release(self, name: str) -> None:
        """Give the source's pages back to the system."""
        for part in self._stored[name].parts if name in self._stored else ():
            self._model.source.release(part)

    def _describe(self, name: str, parts: tuple[str, ...]) -> _Stored:
        infos = [self._model.source.info(part) for part in parts]
        shape = (sum(info.shape[0] for info in infos), *infos[0].shape[1:]) if len(infos) > 1 else infos[0].shape
        base, config = name.split(".")[-2], self._model.config
        if base == "ffn_gate_inp_shexp":
            shape = shape[-1:]
        kind = infos[0].type
        is_plain = len(shape) < 2 or name.endswith(".bias") or base.startswith("ffn_gate_inp")
        if is_plain or any(part in self._orders for part in parts):
            kind = TensorType.F32
        num_bytes = kind.row_bytes(int(np.prod(shape)))
        heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}
        reordered = config.architecture in _INTERLEAVED and base in heads
        added = 1.0 if config.norm_offset and name.endswith("norm.weight") else 0.0
        return _Stored(TensorInfo(name, shape, kind, 0, num_bytes), parts, (heads[base],) if reordered else (), added)

    def _rows(self, part: str, heads: int, each: _Stored) -> Bytes:
        """The bytes of one canonical tensor, rows of each head reordered where `heads` says how many there are."""
        source = self._model.source
        info, data = source.info(part), source.data(part)
        if info.type != each.info.type:
            values = dequantize(data, info.type, info.shape)
            if part in self._orders:
                ordered, order = values, source.data(self._orders[part]).view(np.int32)
                values = np.empty_like(ordered)
                values[:, order] = ordered
            data = (values + np.float32(each.added)).reshape(-1).view(np.uint8)
        elif each.added:
            data = (data.view(np.float32) + np.float32(each.added)).view(np.uint8)
        if not heads:
            return data
        rows = data.reshape(heads, 2, info.shape[0] // heads // 2, -1)  # of both halves of each head
        return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(-1)


def _layout(model: Model) -> dict[str, tuple[str, ...]]:
    """Of each tensor of the file, the canonical ones it holds."""
    fused = _FUSED.get(model.config.architecture, {})
    in_fused = {part for parts in fused.values() for part in parts}
    layout: dict[str, tuple[str, ...]] = {}
    for name in model.program.weights:
        if name.endswith(".input_order"):
            continue
        prefix, _, ending = name.rpartition(".")
        layer, _, base = prefix.rpartition(".")
        if base not in in_fused:
            layout[name] = (name,)
        for whole, parts in fused.items():
            if base == parts[0]:
                layout[f"{layer}.{whole}.{ending}"] = tuple(f"{layer}.{part}.{ending}" for part in parts)
    return layout


def _rope_tensors(config: ModelConfig) -> dict[str, npt.NDArray[np.float32]]:
    """Divisors of frequencies that the format keeps as tensors."""
    scaling = config.rope_scaling
    if scaling is None:
        return {}
    divisors = partial(scaling.divisors, config.rope_dim, config.rope_base)
    if scaling.kind == "llama3":
        return {ROPE_FACTORS: np.array(divisors(config.context_length), np.float32)}
    if scaling.kind == "longrope":
        pairs = {"short": scaling.short_factors, "long": scaling.long_factors}
        return {f"rope_factors_{name}.weight": np.array(values, np.float32) for name, values in pairs.items()}
    return {}
