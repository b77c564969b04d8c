"""ModelConfig: the facts of a model that a family builds its program from. Owns no format."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from twostroke.models.rope_scaling import RopeScaling
from twostroke.program.builder import Layer
from twostroke.program.elementwise import Activation
from twostroke.program.experts import Routed, Routing
from twostroke.program.values import CacheSpec, RopeSpec, Weight

Shapes = Mapping[str, tuple[int, ...]]

MAX_LAYERS = 1 << 10
MAX_DIM = 1 << 20
MAX_VOCAB = 1 << 24
MAX_CONTEXT = 1 << 31
MAX_EXPERTS = 1 << 12


class LatentSizes(NamedTuple):
    """Of multi-head latent attention: ranks of the queries' latent (None for none) and of the keys' and values', and
    the elements of one head: of content and of rotation in queries and keys, and of values."""

    query_rank: int | None
    rank: int
    content_dim: int
    rope_dim: int
    value_dim: int


class RecurrentSizes(NamedTuple):
    """Of gated linear attention: its heads, the elements of each, and the rows that its convolutions see."""

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    width: int


class FullSizes(NamedTuple):
    """Of layers without a window, where they differ from those with one (Gemma 4): heads, rotated elements of each, and
    whether values are the unrotated keys."""

    num_kv_heads: int
    head_dim: int
    rope_dim: int
    keys_are_values: bool


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of a transformer; flat, whatever the source.

    `architecture` is the family's name, as `general.architecture` of a GGUF has it. `windows` gives each layer the
    number of latest tokens that it sees, None for all; empty means None for all layers. `tied_head`: logits come from
    the embedding table.

    RoPE: `rope_dim` is the number of rotated elements of each head, `rope_pairing` which of them the source's weights
    pair; `rope_factors` says that a tensor of factors divides the frequencies; `rope_context` is the context that
    scaling is fixed for, None for `context_length`; layers with a window turn by `local_rope_base`, unscaled, where it
    is given; `unrotated_layers` have no rotation.

    `num_experts` is 0 where there is no mixture; `expert_ffn_dim` and `shared_ffn_dim` are the sizes of each expert and
    of the shared one; `dense_layers` have none of them. `norm_offset` is added to every norm's weight. `*_bias` say
    which linears have biases.

    `layer_input_dim` is of the embedding that each layer has of its own. The last `kv_sharing_layers` read the keys and
    values of the last layer before them with a window like theirs; `wide_ffn_dim` is of their feed-forward, 0 for
    `ffn_dim`.

    `first_position` is the row of the first token in a table of positions, `num_token_types` the kinds of text that an
    encoder tells apart.

    `segment` cuts the context of rotated layers (Llama 4); `position_scale` is period and strength of the scale of the
    other layers' queries. `full` is of layers without a window. `latent` is of models with latent attention,
    `recurrent` of those whose `recurrent_layers` have linear attention.
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
    rope_pairing: Literal["half", "interleaved"] = "half"
    rope_scaling: RopeScaling | None = None
    rope_factors: bool = False
    rope_context: int | None = None
    local_rope_base: float | None = None
    unrotated_layers: frozenset[int] = frozenset()
    windows: tuple[int | None, ...] = ()
    qkv_bias: bool = False
    attn_output_bias: bool = False
    ffn_bias: bool = False
    tied_head: bool = False
    activation: Activation = "silu"
    norm_offset: float = 0.0
    parallel_residual: bool = False
    attention_scale: float | None = None
    attention_soft_cap: float | None = None
    logit_soft_cap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    num_experts: int = 0
    experts_per_token: int = 0
    expert_ffn_dim: int = 0
    shared_ffn_dim: int = 0
    renormalize_experts: bool = False
    dense_layers: frozenset[int] = frozenset()
    expert_scale: float = 1.0
    expert_groups: int = 1
    top_expert_groups: int = 1
    qk_norm: bool = False
    head_bias: bool = False
    segment: int | None = None
    position_scale: tuple[int, float] | None = None
    latent: LatentSizes | None = None
    recurrent: RecurrentSizes | None = None
    recurrent_layers: frozenset[int] = frozenset()
    full: FullSizes | None = None
    layer_input_dim: int = 0
    kv_sharing_layers: int = 0
    wide_ffn_dim: int = 0
    first_position: int = 0
    num_token_types: int = 0

    @property
    def is_encoder(self) -> bool:
        """Whether rows see those after them: such a model generates nothing."""
        return self.architecture == "bert"

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

    def window(self, layer: Layer) -> int | None:
        return self.windows[layer.index] if self.windows else None

    def cache(self, layer: Layer) -> CacheSpec:
        """Keys and values of one layer."""
        segment = None if layer.index in self.unrotated_layers else self.segment
        return CacheSpec(layer / "attention", self.num_kv_heads, self.head_dim, self.window(layer), segment)

    def rope(self, layer: Layer) -> RopeSpec | None:
        """The rotation of one layer, in final numbers; None for none."""
        if layer.index in self.unrotated_layers:
            return None
        if self.local_rope_base is not None and self.window(layer) is not None:
            return RopeSpec(self.rope_dim, self.local_rope_base, self.rope_pairing)
        factors = "rope_freqs.weight" if self.rope_factors else None
        scaling = self.rope_scaling
        if scaling is None:
            return self._rope(None, factors, 1.0)
        context = self.rope_context or self.context_length
        divisors = scaling.divisors(self.rope_dim, self.rope_base, context)
        if scaling.kind == "longrope" and divisors is None:
            factors = f"rope_factors_{'long' if scaling.is_long(context) else 'short'}.weight"
        return self._rope(divisors, factors, scaling.final_magnitude())

    def routed(self, kind: Routing) -> Routed:
        """How rows choose among the experts."""
        return Routed(
            self.num_experts,
            self.experts_per_token,
            kind,
            self.renormalize_experts,
            self.expert_scale,
            self.expert_groups,
            self.top_expert_groups,
        )

    def has_experts(self, layer: Layer) -> bool:
        return self.num_experts > 0 and layer.index not in self.dense_layers

    def _rope(self, divisors: tuple[float, ...] | None, factors: str | None, magnitude: float) -> RopeSpec:
        weight = None if factors is None else Weight(factors, (self.rope_dim // 2,))
        return RopeSpec(self.rope_dim, self.rope_base, self.rope_pairing, divisors, weight, magnitude)
