"""What ops speak of: values, weights, and the specifications of caches, RoPE and norms. Owns no op."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal, NamedTuple


class Rows(StrEnum):
    """What a value has rows for: every token of a step, or only those whose outputs were asked for."""

    TOKENS = "tokens"
    OUTPUTS = "outputs"


class Value(NamedTuple):
    """A named activation, (num_rows, dim) in float32."""

    name: str
    dim: int
    rows: Rows = Rows.TOKENS

    def __str__(self) -> str:
        return f"{self.name}({self.rows}, {self.dim})"


class Weight(NamedTuple):
    """A tensor of the model by its canonical (GGUF) name; shape is (out_dim, in_dim), (dim,), or for a matrix of
    each expert (num_experts, out_dim, in_dim)."""

    name: str
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    def __str__(self) -> str:
        return f"{self.name}[{'x'.join(map(str, self.shape))}]"


class RopeSpec(NamedTuple):
    """Rotary position embedding (Su et al. 2021) of the first `dim` elements of each head, in final numbers.

    `pairing` tells which elements form a rotated pair in the source's weights: "half" is (i, i + dim/2), "interleaved"
    is (2i, 2i+1). Scaling of any kind has been resolved: `divisors` (dim/2,) and the tensor `factors` (dim/2,), where
    there are any, divide the frequencies, and `magnitude` multiplies cosines and sines (YaRN, Peng et al. 2023).
    """

    dim: int
    base: float
    pairing: Literal["half", "interleaved"]
    divisors: tuple[float, ...] | None = None
    factors: Weight | None = None
    magnitude: float = 1.0


CacheGroupKey = tuple[str, int | None, int | None]


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """Keys and values of `num_kv_heads` heads for every token.

    `window` is the number of latest tokens visible to a row, itself included; None means all. `segment` cuts positions
    into stretches of that many tokens, and a row sees those of its own (Llama 4). Ops that name the same cache share
    it: only the first writes.
    """

    kind: ClassVar[Literal["kv"]] = "kv"
    state_elements: ClassVar[int] = 0
    name: str
    num_kv_heads: int
    head_dim: int
    window: int | None = None
    segment: int | None = None

    @property
    def elements_per_token(self) -> int:
        return 2 * self.num_kv_heads * self.head_dim

    @property
    def group(self) -> CacheGroupKey:
        """Caches of one group share a block table: they keep and drop the same tokens."""
        return (self.kind, self.window, self.segment)


@dataclass(frozen=True, slots=True)
class LatentSpec:
    """One latent of `rank` elements for every token, from which all heads' keys and values are expanded, and a rotated
    key of `rope_dim` elements that all heads share (DeepSeek-AI 2024)."""

    kind: ClassVar[Literal["latent"]] = "latent"
    state_elements: ClassVar[int] = 0
    window: ClassVar[None] = None
    segment: ClassVar[None] = None
    name: str
    rank: int
    rope_dim: int

    @property
    def elements_per_token(self) -> int:
        return self.rank + self.rope_dim

    @property
    def group(self) -> CacheGroupKey:
        return (self.kind, None, None)


@dataclass(frozen=True, slots=True)
class StateSpec:
    """`state_elements` numbers that every token of a request rewrites: their size does not grow with its length."""

    kind: ClassVar[Literal["state"]] = "state"
    elements_per_token: ClassVar[int] = 0
    window: ClassVar[None] = None
    segment: ClassVar[None] = None
    name: str
    state_elements: int

    @property
    def group(self) -> CacheGroupKey:
        return (self.kind, None, None)


Cache = CacheSpec | LatentSpec | StateSpec  # all say elements_per_token, state_elements, window, segment, group


class Norm(NamedTuple):
    """Normalisation of a row: x / sqrt(mean(x^2) + eps) * scale, and with "layer" on x - mean(x), plus bias.

    "rms" is Zhang and Sennrich 2019, "layer" is Ba et al. 2016. The scale is `offset` + weight: sources that store what
    is added to 1 have an offset of 1. Without a weight the scale is 1.
    """

    weight: Weight | None
    eps: float
    kind: Literal["rms", "layer"] = "rms"
    bias: Weight | None = None
    offset: float = 0.0

    @property
    def weights(self) -> tuple[Weight, ...]:
        return tuple(weight for weight in (self.weight, self.bias) if weight is not None)
