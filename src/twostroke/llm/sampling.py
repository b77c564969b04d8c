"""SamplingDefaults: what a model is sampled with where the caller does not say. Owns the constants and their order:
the caller's value, the model file's, the constant.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from twostroke.errors import ModelFileError
from twostroke.llm.config import SamplingParams
from twostroke.native.batch import Sampling
from twostroke.weights.directory import member
from twostroke.weights.model_json import read_object

_SEED_BYTES = 4  # short enough to type again
_NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
# Where a GGUF file keeps its model's generation config.
_KEYS = ("temp", "top_k", "top_p", "min_p", "penalty_repeat")
_GENERATION_CONFIG = "generation_config.json"


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """The constants; `from_gguf` and `from_hf` replace those that a model gives."""

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
        keys = {name: f"general.sampling.{key}" for name, key in zip(_NAMES, _KEYS, strict=True)}
        return cls(**_numbers(metadata, keys, "metadata"))

    @classmethod
    def from_hf(cls, directory: Path) -> Self:
        """From a directory's generation_config.json, if it has one; a `do_sample` of false is a temperature of 0.

        Raises ModelFileError, naming file and key, for a file that is malformed or a key that is not a finite number.
        """
        if not (directory / _GENERATION_CONFIG).exists():
            return cls()
        given = read_object(member(directory, _GENERATION_CONFIG, "every model"))
        found = _numbers(given, {name: name for name in _NAMES}, f"{directory / _GENERATION_CONFIG}:")
        if given.get("do_sample") is False:
            found["temperature"] = 0.0
        return cls(**found)

    def items(self) -> list[tuple[str, float]]:
        """Names and values."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]

    def resolve(self, params: SamplingParams, choice: int = 0) -> Sampling:
        """What the engine needs; ranges are checked there. A seed that was not given is drawn here. `choice` makes
        several draws of one seed."""
        values: dict[str, Any] = {}
        for field in fields(self):
            given = getattr(params, field.name)
            values[field.name] = getattr(self, field.name) if given is None else given
        return Sampling(
            **values,
            logit_bias=tuple(params.logit_bias.items()),
            seed=int.from_bytes(os.urandom(_SEED_BYTES)) if params.seed is None else params.seed,
            choice=choice,
            num_logprobs=-1 if params.logprobs is None else params.logprobs,
        )


def _numbers(given: Mapping[str, Any], keys: Mapping[str, str], where: str) -> dict[str, Any]:
    """The finite numbers under `keys`, by field; absent and null ones left out."""
    found: dict[str, Any] = {}
    for name, key in keys.items():
        value = given.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ModelFileError(f"{where} '{key}' is not a finite number")
        found[name] = int(value) if name == "top_k" else float(value)
    return found
