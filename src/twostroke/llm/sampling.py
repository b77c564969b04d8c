"""SamplingDefaults: what a model is sampled with where the caller does not say. Owns the constants and their order:
the caller's value, the model file's, the constant.
"""

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from twostroke.errors import ModelFileError
from twostroke.llm.config import SamplingParams
from twostroke.native.batch import Sampling

_SEED_BITS = 32  # short enough to type again
# Where a GGUF file keeps its model's generation config.
_KEYS = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """The constants; `from_gguf` replaces those that a model's file gives."""

    temperature: float = 0.3
    top_k: int = 0
    top_p: float = 0.9
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Self:
        """Raises ModelFileError naming a key that is not a finite number."""
        found: dict[str, Any] = {}
        for name, key in _KEYS.items():
            if key in metadata:
                value = metadata[key]
                if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                    raise ModelFileError(f"metadata '{key}' is not a finite number")
                found[name] = int(value) if name == "top_k" else float(value)
        return cls(**found)

    def items(self) -> list[tuple[str, float]]:
        """Names and values."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]

    def resolve(self, params: SamplingParams) -> Sampling:
        """What the engine needs; ranges are checked there. A seed that was not given is drawn here."""
        values: dict[str, Any] = {}
        for field in fields(self):
            given = getattr(params, field.name)
            values[field.name] = getattr(self, field.name) if given is None else given
        return Sampling(
            **values,
            logit_bias=tuple(params.logit_bias.items()),
            seed=secrets.randbits(_SEED_BITS) if params.seed is None else params.seed,
            num_logprobs=-1 if params.logprobs is None else params.logprobs,
        )
