"""The op of multi-head latent attention. Part of the vocabulary of `ops`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from twostroke.program.op import Op, require
from twostroke.program.values import LatentSpec, RopeSpec, Value, Weight


@dataclass(frozen=True, slots=True)
class LatentAttention(Op):
    """Multi-head latent attention (DeepSeek-AI 2024): keys and values are expanded from one cached latent a token.

    Head h scores its query, `content_dim` elements and then rope.dim rotated ones, against (expand_k_h @ latent,
    rotated k_rope), and mixes expand_v_h @ latent. `expand` is (num_heads * (content_dim + value_dim), rank): of each
    head the rows of its keys, then those of its values.

    There are two orders of the same products: prefill expands the latents of its context into keys and values once and
    attends to those; decode takes expand_k into the query and expand_v out of the mixed latents, and attends to the
    latents themselves. Both read the same `expand`; the choice follows the phase and changes rounding alone.
    """

    kind: ClassVar[str] = "latent_attention"
    output: str
    q: str
    latent: str
    k_rope: str
    expand: Weight
    num_heads: int
    content_dim: int
    cache: LatentSpec
    rope: RopeSpec
    scale: float

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.q, self.latent, self.k_rope)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.expand,) if self.rope.factors is None else (self.expand, self.rope.factors)

    @property
    def value_dim(self) -> int:
        """Elements of one head's values."""
        return self.expand.shape[0] // self.num_heads - self.content_dim

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        q, latent, k_rope = values[self.q], values[self.latent], values[self.k_rope]
        rows, heads = self.expand.shape[0], self.num_heads
        require(rows % heads == 0 and self.value_dim > 0, f"{self.expand} does not divide among {heads} heads")
        require(q.dim == heads * (self.content_dim + self.cache.rope_dim), f"{q} is not {heads} heads")
        require(latent.dim == self.cache.rank == self.expand.shape[1], f"{latent} is not what {self.expand} expands")
        require(k_rope.dim == self.cache.rope_dim == self.rope.dim, f"{k_rope} is not the rotated part of a key")
        require(self.rope.dim % 2 == 0, "rotary dim is odd")
        return (Value(self.output, heads * self.value_dim, q.rows),)
