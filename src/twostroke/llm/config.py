"""LLMConfig and SamplingParams: everything a caller can choose, flat. Owns names, defaults and what each is for.

The command line makes its options from these fields: a field's `help` (and `choices`) are its option's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from twostroke.errors import ConfigError, InvalidRequestError, TwostrokeError
from twostroke.llm.stop import StopStrings
from twostroke.weights.aliases import DEFAULT_MODEL

KV_NAMES = ("f16", "bf16", "f32", "q8_0")
FILE_TYPES = ("q4_0", "q4_k", "q5_k", "q6_k", "q8_0", "bf16", "f16")
WEIGHT_NAMES = (*FILE_TYPES, "f32")
ISA_NAMES = ("scalar", "avx2", "avx512", "avx512_bf16", "amx")


def _option(default: Any, text: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": text, "choices": choices})


@dataclass(frozen=True, slots=True)
class LLMConfig:
    """How a model is loaded. Raises ConfigError where a number is below 1 or a name unknown."""

    model: str = _option(DEFAULT_MODEL, "Alias, GGUF file, Hugging Face directory, or hf:owner/name[/file].")
    context: int | None = _option(None, "Tokens of prompt and answer together at most; default: the model's.")
    max_batch: int = _option(8, "Requests that run together; more wait. Sizes the KV pool.")
    threads: int | None = _option(None, "Threads that compute; default: from affinity, cgroup quota and cores.")
    kv: str = _option("f16", "Type of the KV cache.", KV_NAMES)
    weights: str | None = _option(None, "Quantise matrices to this type as they load.", WEIGHT_NAMES)
    mlock: bool = _option(False, "Lock the model in memory, so that none of it is paged out.")
    isa: str | None = _option(None, "Instruction set; default: the best this machine has.", ISA_NAMES)
    max_step_tokens: int = _option(512, "Rows of one engine step at most: how far a prompt is cut into chunks.")
    tpot_target: float | None = _option(
        None, "Seconds a step may take while answers run beside prompts; default: prompts get half the time, or more."
    )
    speculation: bool = _option(True, "Draft from an answer's own words where that is faster; the text is the same.")
    reuse_generated: bool = _option(
        False, "A prompt may reuse what earlier answers computed. Its answer then depends on them: see numerics."
    )
    kv_disk: str | None = _option(None, "Directory for KV blocks that the pool has no room for; they outlive the run.")
    kv_disk_size: float = _option(4.0, "GiB of files in it at most.")
    embed_only: bool = _option(False, "Load no more than embeddings need: without the output matrix.")

    def __post_init__(self) -> None:
        for name in ("context", "max_batch", "max_step_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
        if not 0 < self.kv_disk_size < math.inf:
            raise ConfigError(f"kv_disk_size must be a number of GiB above 0, not {self.kv_disk_size}")
        if self.kv not in KV_NAMES:
            raise ConfigError(f"kv must be one of {', '.join(KV_NAMES)}, not {self.kv!r}")
        if self.weights is not None and self.weights not in WEIGHT_NAMES:
            raise ConfigError(f"weights must be one of {', '.join(WEIGHT_NAMES)}, not {self.weights!r}")

    @classmethod
    def of(cls, **options: Any) -> Self:
        """From keyword arguments. Raises ConfigError naming one that does not exist."""
        _refuse_unknown(cls, options, ConfigError)
        return cls(**options)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How an answer is made. None is the model's own default where its file has one, else that of `SamplingDefaults`.

    `logprobs` asks for the log-probability of each token of the answer and of that many alternatives. The answer ends
    before the first of the `stop` strings, which is no part of the text unless `include_stop` says so.
    """

    temperature: float | None = _option(None, "Above 0: how widely to draw; 0 always takes the likeliest token.")
    top_k: int | None = _option(None, "Draw from the k likeliest tokens; 0 is all.")
    top_p: float | None = _option(None, "Draw from the likeliest tokens that together have this probability.")
    min_p: float | None = _option(None, "Leave out tokens below this fraction of the likeliest one's probability.")
    repetition_penalty: float | None = _option(None, "Above 1: tokens seen before become less likely.")
    presence_penalty: float | None = _option(None, "Taken from the logits of tokens already in the answer.")
    frequency_penalty: float | None = _option(None, "Taken from a token's logit for each time the answer has it.")
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = _option(None, "Makes the draw repeatable; default: random, and reported.")
    max_tokens: int | None = _option(None, "New tokens at most; default: all the context has room for.")
    stop: tuple[str, ...] = _option((), "End before this text; may be given more than once.")
    include_stop: bool = False
    ignore_eos: bool = _option(False, "Go on after the model's end-of-text token.")
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) and text for text in self.stop):
            raise InvalidRequestError(f"stop must be texts that are not empty, not {self.stop!r}")
        if self.logprobs is not None and self.logprobs < 0:
            raise InvalidRequestError(f"logprobs must be at least 0, not {self.logprobs}")

    def stop_strings(self) -> StopStrings:
        """What watches one answer's text for them."""
        return StopStrings(self.stop, included=self.include_stop)

    @classmethod
    def of(cls, **options: Any) -> Self:
        """From keyword arguments; `stop` may be one text. Raises InvalidRequestError naming one that does not exist."""
        _refuse_unknown(cls, options, InvalidRequestError)
        stop = options.get("stop") or ()
        options["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
        return cls(**options)


def _refuse_unknown(cls: Any, options: Mapping[str, Any], error: type[TwostrokeError]) -> None:
    names = [known.name for known in fields(cls)]
    for name in options:
        if name not in names:
            raise error(f"{name} is no option; there are {', '.join(names)}")
