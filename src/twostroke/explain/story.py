"""Story: everything a page of `explain` says, as plain data. Owns the record; whoever made it measured or predicted.

Times in seconds, sizes in bytes, rates in bytes and FLOPs per second. `source` is "measured" or "predicted" and holds
for times and rates; FLOPs and bytes moved are counted from the program in either case.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from twostroke.program.phase import Phase

Source = Literal["measured", "predicted"]


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the vocabulary: bytes that are no whole character are written \\xNN."""

    id: int
    text: str
    is_template: bool = False


@dataclass(frozen=True, slots=True)
class Near:
    """A token and the cosine of its vector with another's."""

    token: Token
    cosine: float


@dataclass(frozen=True, slots=True)
class WordVector:
    """The embedding of a token of the prompt: its first numbers, its length, and the tokens whose vectors point most
    alike. `median_cosine` is that with all of the vocabulary: what any two tokens have in common."""

    token: Token
    values: tuple[float, ...]
    length: float
    nearest: tuple[Near, ...]
    median_cosine: float


@dataclass(frozen=True, slots=True)
class Vectors:
    """The embedding matrix, (num_tokens, dim) in `type`, and some words of the prompt in it. `cosines` are theirs with
    each other."""

    num_tokens: int
    dim: int
    type: str
    words: tuple[WordVector, ...]
    cosines: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the engine, or one that is predicted. `started` counts from the first; `kept_bytes` is the KV cache
    after it."""

    phase: Phase
    started: float
    seconds: float
    tokens: int
    flops: float
    weight_bytes: float
    kv_bytes: float
    activation_bytes: float
    kept_tokens: int
    kept_bytes: float

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


@dataclass(frozen=True, slots=True)
class Part:
    """What one kind of op, or one layer, computes and moves."""

    name: str
    count: int
    flops: float
    weight_bytes: float
    kv_bytes: float
    activation_bytes: float

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


@dataclass(frozen=True, slots=True)
class Stroke:
    """All steps of a phase together, and where they stand under the roofs; `bound` is None where a roof is not known.

    `seconds` are for `tokens` tokens of one request; `low` and `high` hold 80% of measurements of a predicted kind.
    `starting_share` is the part of them, where predicted, that neither bytes nor FLOPs take: starting kernels.
    """

    tokens: int
    steps: int
    seconds: float
    low: float | None
    high: float | None
    flops: float
    weight_bytes: float
    kv_bytes: float
    activation_bytes: float
    roof_flop_s: float | None
    roof_byte_s: float
    bound: str | None
    roof_fraction: float | None
    by_kind: tuple[Part, ...]
    by_layer: tuple[Part, ...]
    starting_share: float | None = None

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def intensity(self) -> float:
        """FLOPs per byte moved."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def ridge(self) -> float | None:
        """FLOPs per byte above which arithmetic is the limit."""
        return None if self.roof_flop_s is None else self.roof_flop_s / self.roof_byte_s


@dataclass(frozen=True, slots=True)
class Choice:
    """A token of the answer, its probability, and the likeliest ones there with theirs, before temperature and cuts."""

    token: Token
    probability: float
    alternatives: tuple[tuple[Token, float], ...]


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory by what it is for; `overhead_bytes` is predicted in any case. `kv_bytes` is set aside for `kv_tokens`.

    `max_context` is the longest one request could have in what is there, up to the model's own. `peak_bytes` is what
    the process took at most, where one ran.
    """

    weight_bytes: float
    kv_bytes: float
    kv_tokens: int
    kv_bytes_per_token: float
    activation_bytes: float
    overhead_bytes: float
    capacity_bytes: float | None
    max_context: int | None
    peak_bytes: int | None

    @property
    def total_bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes + self.overhead_bytes

    @property
    def left_bytes(self) -> float | None:
        return None if self.capacity_bytes is None else self.capacity_bytes - self.total_bytes


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the model is; `experts` of a layer, 0 where it is no mixture."""

    name: str
    architecture: str
    parameters: int
    layers: int
    dim: int
    vocabulary: int
    context: int
    experts: int
    weights: str
    weight_bytes: float
    kv: str


@dataclass(frozen=True, slots=True)
class Story:
    """A run in the order it happened, or a plan of one. What only a run has is empty in a plan.

    crossover   prompt tokens from which prefill is compute-bound under these roofs; None where it never is
    what_if     what `what_if.py` gives the page to evaluate
    """

    source: Source
    model: ModelFacts
    hardware: str
    hardware_source: str
    engine: str
    prompt: tuple[Token, ...]
    answer: str
    finish_reason: str | None
    vectors: Vectors | None
    prefill: Stroke | None
    decode: Stroke
    steps: tuple[Step, ...]
    choices: tuple[Choice, ...]
    memory: MemoryUse
    crossover: int | None
    what_if: Mapping[str, Any]

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
