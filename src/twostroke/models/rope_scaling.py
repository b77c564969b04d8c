"""How rotary position embedding is stretched beyond its first training. Owns each kind's formula and spelling.

A scaling is resolved into final numbers for one context, that which the engine was configured for, and not by the
length of a request so far: a row's result depends on its own tokens only. Two kinds therefore differ from what
`transformers` does. "dynamic" takes its base from the configured context at once, where that library grows it with the
request beyond the original context; "longrope" takes its long factors whenever the configured context exceeds the
original one, that library only when the request does.
"""

import math
from dataclasses import dataclass
from typing import Literal

from twostroke.models.facts import Facts

Kind = Literal["linear", "dynamic", "yarn", "llama3", "longrope"]

_MAX_FACTOR, _MAX_CONTEXT, _MAX_BASE = 1e6, 1 << 31, 1e12


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """A kind of scaling and its constants. `magnitude` is None where it follows from the others.

    `short_factors` and `long_factors` (dim/2,) are None where the source has them as tensors.
    """

    kind: Kind
    factor: float
    original_context: int = 0
    magnitude: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    low_frequency: float = 1.0
    high_frequency: float = 4.0
    short_factors: tuple[float, ...] | None = None
    long_factors: tuple[float, ...] | None = None

    def divisors(self, dim: int, base: float, context: int) -> tuple[float, ...] | None:
        """What divides the frequency of each pair, (dim/2,); None where a tensor tells.

        Frequencies are base^(-2i/dim); `context` is the number of tokens that the engine was configured for.
        """
        pairs = range(dim // 2)
        if self.kind == "linear":
            return tuple(self.factor for _ in pairs)
        if self.kind == "longrope":
            return self.long_factors if self.is_long(context) else self.short_factors
        if self.kind == "dynamic":
            grown = max(1.0, self.factor * context / self.original_context - (self.factor - 1))
            stretch = grown ** (dim / (dim - 2)) if dim > 2 else 1.0  # of the base
            return tuple(stretch ** (2 * pair / dim) for pair in pairs)
        if self.kind == "yarn":
            kept = self._kept_by_yarn(dim, base)
            return tuple(1 / (kept[pair] + (1 - kept[pair]) / self.factor) for pair in pairs)
        return tuple(self._llama3(2 * math.pi * base ** (2 * pair / dim)) for pair in pairs)

    def is_long(self, context: int) -> bool:
        return context > self.original_context

    def final_magnitude(self) -> float:
        """What cosines and sines are multiplied by (attention factor)."""
        if self.magnitude is not None:
            return self.magnitude
        if self.factor <= 1:
            return 1.0
        if self.kind == "yarn":
            return 0.1 * math.log(self.factor) + 1.0
        if self.kind == "longrope":
            return math.sqrt(1 + math.log(self.factor) / math.log(self.original_context))
        return 1.0

    def _kept_by_yarn(self, dim: int, base: float) -> list[float]:
        """How much of each pair's own frequency is kept: 1 for fast ones, 0 for slow ones (Peng et al. 2023)."""

        def pair_of(rotations: float) -> float:
            """The pair that turns this often over the original context."""
            return dim * math.log(self.original_context / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low, high = pair_of(self.beta_fast), pair_of(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        width = high - low if high != low else 0.001
        return [1 - min(max((pair - low) / width, 0.0), 1.0) for pair in range(dim // 2)]

    def _llama3(self, wavelength: float) -> float:
        """The divisor of a frequency: 1 for short waves, the factor for long ones (Grattafiori et al. 2024)."""
        turns = self.original_context / wavelength
        if turns > self.high_frequency:
            return 1.0
        if turns < self.low_frequency:
            return self.factor
        kept = (turns - self.low_frequency) / (self.high_frequency - self.low_frequency)
        return 1 / (kept + (1 - kept) / self.factor)


def read_base(facts: Facts, key: str, default: float | None = None) -> float:
    """The base of the frequencies, base^(-2i/dim): above 1."""
    base = facts.number(key, _MAX_BASE, default)
    if base <= 1:
        raise facts.error(key, f"is {base:g}, not above 1")
    return base


def scaling_from_hf(facts: Facts, rope_dim: int, original_context: int, context: int) -> RopeScaling | None:
    """The scaling under `rope_scaling` or `rope_parameters`, whose kind is `rope_type` or `type`; None for none.

    `original_context` and `context` are the model's, for where the scaling does not say.
    """
    kind = facts.text("rope_type", facts.text("type", "default"))
    if kind in ("default", "none"):
        return None
    if kind in ("su", "longrope"):
        original = _original(facts, "original_max_position_embeddings", original_context)
        factor = facts.number("factor", _MAX_FACTOR, context / original)
        short, long = (facts.numbers(f"{name}_factor", rope_dim // 2) for name in ("short", "long"))
        magnitude = facts.optional_number("attention_factor", _MAX_FACTOR)
        return RopeScaling("longrope", factor, original, magnitude, short_factors=short, long_factors=long)
    original = _original(facts, "original_max_position_embeddings", original_context)
    factor = facts.number("factor", _MAX_FACTOR, context / original if kind == "yarn" else None)
    if kind == "linear":
        return RopeScaling("linear", factor)
    if kind == "dynamic":
        return RopeScaling("dynamic", factor, context)  # whatever else it says, as the library reads it
    if kind == "llama3":
        low = facts.number("low_freq_factor", _MAX_FACTOR)
        high = facts.number("high_freq_factor", _MAX_FACTOR)
        if high <= low:
            raise facts.error("high_freq_factor", f"is {high:g}, not above low_freq_factor {low:g}")
        return RopeScaling("llama3", factor, original, low_frequency=low, high_frequency=high)
    if kind != "yarn":
        raise facts.unsupported("rope_type", f"is {kind[:60]!r}; only {', '.join(_KINDS)} are supported")
    fast, slow = facts.number("beta_fast", _MAX_FACTOR, 32.0), facts.number("beta_slow", _MAX_FACTOR, 1.0)
    truncate = facts.boolean("truncate", True)
    return RopeScaling("yarn", factor, original, _yarn_magnitude(facts, factor), fast, slow, truncate)


_KINDS = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")


def _original(facts: Facts, key: str, default: int) -> int:
    original = facts.integer(key, _MAX_CONTEXT, default)
    if original < 2:
        raise facts.error(key, f"is {original}, no context to scale from")
    return original


def _yarn_magnitude(facts: Facts, factor: float) -> float | None:
    """As stated, or from DeepSeek's two constants; None for the paper's own."""
    magnitude = facts.optional_number("attention_factor", _MAX_FACTOR)
    scale = facts.optional_number("mscale", _MAX_FACTOR)
    scale_all = facts.optional_number("mscale_all_dim", _MAX_FACTOR)
    if magnitude is not None or scale is None or scale_all is None or factor <= 1:
        return magnitude
    return (0.1 * scale * math.log(factor) + 1) / (0.1 * scale_all * math.log(factor) + 1)


def scaling_from_gguf(facts: Facts, context: int, *, has_long_factors: bool = False) -> RopeScaling | None:
    """The scaling under `rope.scaling.*`. A file without a type, as older ones are, means linear scaling.

    Factors of "longrope" are tensors, `has_long_factors` says that they are there, and its type is often unsaid. The
    kind "llama3" has no keys but a tensor of factors, and none is told here.
    """
    kind = facts.text("rope.scaling.type", "longrope" if has_long_factors else "linear")
    if kind == "none":
        return None
    if kind == "linear":
        older = facts.number("rope.scale_linear", _MAX_FACTOR, 1.0)
        has_type = "rope.scaling.type" in facts
        factor = facts.number("rope.scaling.factor", _MAX_FACTOR, None if has_type else older)
        return None if factor == 1.0 else RopeScaling("linear", factor)
    if kind == "longrope":
        original = _original(facts, "rope.scaling.original_context_length", context)
        magnitude = facts.optional_number("rope.scaling.attn_factor", _MAX_FACTOR)
        factor = facts.number("rope.scaling.factor", _MAX_FACTOR, context / original)
        return RopeScaling("longrope", factor, original, magnitude)
    if kind != "yarn":
        raise facts.unsupported(
            "rope.scaling.type", f"is {kind[:60]!r}; only none, linear, yarn and longrope are supported"
        )
    factor = facts.number("rope.scaling.factor", _MAX_FACTOR)
    original = _original(facts, "rope.scaling.original_context_length", context)
    fast = facts.number("rope.scaling.yarn_beta_fast", _MAX_FACTOR, 32.0)
    slow = facts.number("rope.scaling.yarn_beta_slow", _MAX_FACTOR, 1.0)
    times = facts.number("rope.scaling.yarn_attn_factor", _MAX_FACTOR, 1.0)
    times *= facts.number("rope.scaling.attn_factor", _MAX_FACTOR, 1.0)
    magnitude = None if times == 1.0 else times * RopeScaling("yarn", factor, original).final_magnitude()
    return RopeScaling("yarn", factor, original, magnitude, fast, slow)
