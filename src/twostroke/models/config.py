"""ModelConfig: the facts of a model that a family builds its program from. Owns reading them from GGUF metadata.

Every key is checked here, once, before use: present, of its type, in its range. Values that would change the
arithmetic in a way no family here has are refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.program.builder import Layer
from twostroke.program.values import CacheSpec, RopeSpec, Weight
from twostroke.weights.gguf import MetadataValue

Metadata = Mapping[str, MetadataValue]
Shapes = Mapping[str, tuple[int, ...]]

_MAX_LAYERS = 1 << 10
_MAX_DIM = 1 << 20
_MAX_VOCAB = 1 << 24
_MAX_CONTEXT = 1 << 31
# Keys under the architecture's name that only one value of is supported, which is also what their absence means.
_ONLY: Mapping[str, bool | int] = {"expert_count": 0, "attention.sliding_window": 0, "attention.causal": True}
ROPE_FACTORS = "rope_freqs.weight"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of a decoder-only transformer; flat, whatever the source.

    `rope_dim` is the number of rotated elements of each head, `rope_linear_factor` divides positions, `rope_factors`
    says that a tensor of factors divides the frequencies. `tied_head`: logits come from the embedding table.
    """

    architecture: str
    name: str
    num_layers: int
    dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_dim: int
    vocab_size: int
    context_length: int
    norm_eps: float
    rope_dim: int
    rope_base: float = 10000.0
    rope_linear_factor: float = 1.0
    rope_factors: bool = False
    qkv_bias: bool = False
    attn_output_bias: bool = False
    tied_head: bool = False

    @property
    def q_dim(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def head(self) -> str:
        """Name of the matrix that gives the logits."""
        return "token_embd" if self.tied_head else "output"

    def rope(self, pairing: Literal["half", "interleaved"]) -> RopeSpec:
        """The rotation, with the pairing of the family's weights."""
        factors = Weight(ROPE_FACTORS, (self.rope_dim // 2,)) if self.rope_factors else None
        factor = self.rope_linear_factor
        divisors = None if factor == 1.0 else (factor,) * (self.rope_dim // 2)
        return RopeSpec(self.rope_dim, self.rope_base, pairing, divisors, factors)

    def cache(self, layer: Layer) -> CacheSpec:
        """Keys and values of one layer."""
        return CacheSpec(layer / "attention", self.num_kv_heads, self.head_dim)


def config_from_gguf(metadata: Metadata, tensor_shapes: Shapes) -> ModelConfig:
    """The configuration of a GGUF model.

    `tensor_shapes` maps tensor names to shapes in NumPy order; the vocabulary's size, biases, RoPE factors and a tied
    head follow from them. Raises ModelFileError for a key that is missing, ill-typed or out of range,
    UnsupportedModelError for a value that is valid but not supported; both name the key.
    """
    read = _Reader(metadata, architecture(metadata))
    for key, only in _ONLY.items():
        read.require_only(key, only)
    dim = read.integer("embedding_length", _MAX_DIM)
    num_heads = read.integer("attention.head_count", _MAX_DIM)
    head_dim = _head_dim(read, dim, num_heads)
    num_kv_heads = read.integer("attention.head_count_kv", num_heads, num_heads)
    if num_heads % num_kv_heads:
        raise read.error("attention.head_count_kv", f"is {num_kv_heads}, which does not divide {num_heads} heads")
    rope_dim = read.integer("rope.dimension_count", head_dim, head_dim)
    if rope_dim % 2:
        raise read.error("rope.dimension_count", f"is {rope_dim}, which is odd")
    return ModelConfig(
        architecture=read.architecture,
        name=_name(metadata, read.architecture),
        num_layers=read.integer("block_count", _MAX_LAYERS),
        dim=dim,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        ffn_dim=read.integer("feed_forward_length", _MAX_DIM),
        vocab_size=_vocab_size(metadata, tensor_shapes, dim),
        context_length=read.integer("context_length", _MAX_CONTEXT),
        norm_eps=read.number("attention.layer_norm_rms_epsilon", 1.0),
        rope_dim=rope_dim,
        rope_base=read.number("rope.freq_base", 1e12, 10000.0),
        rope_linear_factor=_linear_factor(read),
        rope_factors=ROPE_FACTORS in tensor_shapes,
        qkv_bias="blk.0.attn_q.bias" in tensor_shapes,
        attn_output_bias="blk.0.attn_output.bias" in tensor_shapes,
        tied_head="output.weight" not in tensor_shapes,
    )


def architecture(metadata: Metadata) -> str:
    """`general.architecture`. Raises ModelFileError where it is missing or not a name."""
    value = metadata.get("general.architecture")
    if not isinstance(value, str) or not value:
        raise ModelFileError("metadata 'general.architecture' is missing or not a string")
    return value


def _name(metadata: Metadata, default: str) -> str:
    value = metadata.get("general.name", default)
    return value if isinstance(value, str) and value else default


def _head_dim(read: "_Reader", dim: int, num_heads: int) -> int:
    head_dim = read.integer("attention.key_length", _MAX_DIM, dim // num_heads)
    if "attention.key_length" not in read and dim % num_heads:
        raise read.error("attention.head_count", f"is {num_heads}, which does not divide embedding_length {dim}")
    value_dim = read.integer("attention.value_length", _MAX_DIM, head_dim)
    if value_dim != head_dim:
        raise UnsupportedModelError(
            f"{read.named('attention.value_length')} is {value_dim}; other than key_length {head_dim} is not supported"
        )
    return head_dim


def _vocab_size(metadata: Metadata, shapes: Shapes, dim: int) -> int:
    """Rows of the embedding table, which may be padded beyond the tokenizer's tokens."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    num_tokens = len(tokens) if isinstance(tokens, list) else 0
    shape = shapes.get("token_embd.weight", (num_tokens, dim))
    if len(shape) != 2 or shape[1] != dim:
        raise ModelFileError(f"tensor 'token_embd.weight' has shape {list(shape)}, not rows of embedding_length {dim}")
    if not 0 < shape[0] <= _MAX_VOCAB:
        raise ModelFileError(f"vocabulary of {shape[0]:,} tokens is not in 1 to {_MAX_VOCAB:,}")
    if num_tokens > shape[0]:
        raise ModelFileError(
            f"metadata 'tokenizer.ggml.tokens' has {num_tokens:,} tokens, tensor 'token_embd.weight' {shape[0]:,} rows"
        )
    return shape[0]


def _linear_factor(read: "_Reader") -> float:
    """What positions are divided by. A file without a scaling type, as older ones are, means linear scaling."""
    kind = read.metadata.get(f"{read.architecture}.rope.scaling.type", "linear")
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise UnsupportedModelError(
            f"{read.named('rope.scaling.type')} is {kind!r}; only none and linear are supported"
        )
    older = read.number("rope.scale_linear", 1e6, 1.0)
    if "rope.scaling.type" in read:
        return read.number("rope.scaling.factor", 1e6)
    return read.number("rope.scaling.factor", 1e6, older)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Checked reading of the keys under an architecture's name."""

    metadata: Metadata
    architecture: str

    def __contains__(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self.metadata

    def named(self, key: str) -> str:
        return f"metadata '{self.architecture}.{key}'"

    def error(self, key: str, what: str) -> ModelFileError:
        return ModelFileError(f"{self.named(key)} {what}")

    def integer(self, key: str, limit: int, default: int | None = None) -> int:
        """An integer from 1 to `limit`; an array that gives each layer its own is supported where all are equal."""
        value = self._value(key, default)
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.size and value.dtype.kind in "iu":
            if np.any(value != value[0]):
                raise UnsupportedModelError(f"{self.named(key)} differs from layer to layer, which is not supported")
            value = int(value[0])
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(key, "is not an integer")
        if not 1 <= value <= limit:
            raise self.error(key, f"is {value:,}, not in 1 to {limit:,}")
        return value

    def number(self, key: str, limit: float, default: float | None = None) -> float:
        """A finite number above 0 and at most `limit`."""
        value = self._value(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(key, "is not a number")
        if not 0 < value <= limit:  # so is a NaN
            raise self.error(key, f"is {value:g}, not above 0 and at most {limit:g}")
        return float(value)

    def require_only(self, key: str, only: bool | int) -> None:
        """Refuse any other value of a key."""
        if key in self and self._value(key, None) != only:
            raise UnsupportedModelError(f"{self.named(key)} is {self._value(key, None)}, which is not supported")

    def _value(self, key: str, default: MetadataValue | None) -> MetadataValue:
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise self.error(key, "is missing")
        return value
