"""ModelBenchConfig: everything `bench MODEL` can be asked, flat. Owns names, defaults, ranges and what each is for.

The command line makes its options from these fields: a field's `help` is its option's.
"""

from dataclasses import dataclass, field
from typing import Any

from twostroke.bench.cell import Scenario, scenarios
from twostroke.errors import ConfigError
from twostroke.llm.config import ISA_NAMES, KV_NAMES, WEIGHT_NAMES

REFERENCE_WEIGHTS = "f64"
_MOST = 10_000_000


def _option(default: Any, text: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": text, "choices": choices})


@dataclass(frozen=True, slots=True)
class ModelBenchConfig:
    """One benchmark of one model. Raises ConfigError naming the field that is out of its range."""

    model: str
    prompt_tokens: str = _option("512", "Tokens of a prompt; a list times each.")
    gen_tokens: str = _option("64", "Tokens of an answer; a list times each.")
    batch: str = _option("1", "Requests together; a list times each.")
    depth: str = _option("0", "Tokens in the KV cache before those that are timed; a list times each.")
    repeat: int = _option(5, "Passes of each combination, of which medians are shown.")
    weights: str | None = _option(
        None, "Types to make of the weights, as q4_0,q8_0,f32; f64 is the reference in NumPy. Adds perplexity."
    )
    kv: str = _option("f16", "Types of the KV cache.")
    threads: int | None = _option(None, "Threads that compute; default: from affinity, cgroup quota and cores.")
    isa: str | None = _option(None, "Instruction set; default: the best this machine has.", ISA_NAMES)
    perplexity: bool = _option(False, "Score a short passage too.")

    def __post_init__(self) -> None:
        for name, least in (("prompt_tokens", 0), ("gen_tokens", 0), ("batch", 1), ("depth", 0)):
            numbers(name, getattr(self, name), least)
        if not 1 <= self.repeat <= 1000:
            raise ConfigError(f"repeat must be from 1 to 1000, not {self.repeat}")
        _names("weights", self.weights or "", (*WEIGHT_NAMES, REFERENCE_WEIGHTS))
        _names("kv", self.kv, KV_NAMES)
        if any(not one.prompt_tokens and not one.gen_tokens for one in self.scenarios):
            raise ConfigError("prompt_tokens and gen_tokens are both 0: there is nothing to time")

    @property
    def scenarios(self) -> list[Scenario]:
        """Every combination of lengths, batches and depths."""
        prompts, answers = numbers("prompt_tokens", self.prompt_tokens, 0), numbers("gen_tokens", self.gen_tokens, 0)
        return list(scenarios(prompts, answers, numbers("batch", self.batch, 1), numbers("depth", self.depth, 0)))

    @property
    def weight_types(self) -> list[str | None]:
        """Of each model to load; None is the file's own."""
        names: list[str | None] = list(_names("weights", self.weights or "", (*WEIGHT_NAMES, REFERENCE_WEIGHTS)))
        return names or [None]

    @property
    def kv_types(self) -> list[str]:
        return _names("kv", self.kv, KV_NAMES)

    @property
    def wants_perplexity(self) -> bool:
        return self.perplexity or self.weights is not None


def numbers(name: str, text: str, least: int) -> list[int]:
    """A list as 1,8,16. Raises ConfigError naming the field."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{name} must be whole numbers, as 1,8,16, not {text!r}") from None
    for number in found:
        if not least <= number <= _MOST:
            raise ConfigError(f"{name} must be from {least} to {_MOST:,}, not {number}")
    return found


def _names(name: str, text: str, known: tuple[str, ...]) -> list[str]:
    found = [part.strip() for part in text.split(",")] if text else []
    for one in found:
        if one not in known:
            raise ConfigError(f"{name} must be among {', '.join(known)}, not {one!r}")
    return found
