"""LoadTestConfig: everything a load test can be asked, flat. Owns names, defaults and what each is for.

The command line makes its options from these fields: a field's `help` (and `choices`) are its option's.
"""

from dataclasses import dataclass, field, fields
from typing import Any

from twostroke.errors import ConfigError

SHAPES = {"100/300": (100, 300), "1k/1k": (1000, 1000), "10k/1.5k": (10_000, 1500), "100k/2k": (100_000, 2000)}


def _option(default: Any, text: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": text, "choices": choices})


@dataclass(frozen=True, slots=True)
class LoadTestConfig:
    """One load test of one endpoint. Raises ConfigError for what is outside its range or contradicts another field."""

    url: str
    endpoint: str = _option("chat", "Which of the two APIs to call.", ("chat", "completions"))
    model: str | None = _option(None, "The model's name in requests; default: the first of /v1/models.")
    tokenizer: str | None = _option(None, "Counts prompt tokens: alias, GGUF file or tokenizer directory.")
    shape: str | None = _option(None, "Prompt and output tokens: a usual pair; default: 100/300.", tuple(SHAPES))
    prompt_tokens: str | None = _option(None, "512, 100-300 (uniform) or 512~64 (normal: mean, deviation).")
    output_tokens: str | None = _option(None, "The same for the answers.")
    dataset: str | None = _option(None, "JSONL of conversations or prompts to send instead.")
    shared_prefix: float = _option(0.0, "Share of every prompt's tokens that is the same text, 0 to 1.")
    turns: int = _option(1, "Turns of a conversation, each with all before it.")
    concurrency: str | None = _option(None, "Closed loop: conversations at a time; a list is a sweep. Default: 1.")
    rate: str | None = _option(None, "Open loop: conversations a second, whatever the server does; a list is a sweep.")
    arrivals: str = _option("poisson", "How they arrive in the open loop.", ("poisson", "constant"))
    ramp: float = _option(0.0, "Seconds in which a stage's load rises to its value; not measured.")
    requests: int | None = _option(None, "Requests a stage, warm-up aside.")
    seconds: float | None = _option(None, "Seconds a stage sends for; default: 30 where no --requests is given.")
    warmup: int = _option(1, "Requests answered before each stage is measured.")
    timeout: float = _option(600.0, "Seconds a request may take.")
    slo: str | None = _option(None, "Goodput's bounds, as ttft=0.5,tpot=0.05,e2e=10 in seconds.")
    extra: str | None = _option(None, "JSON object of more fields for every request.")
    ignore_eos: bool | None = _option(None, "Ask for answers of full length; default: yes, except with --dataset.")
    seed: int | None = _option(None, "Makes prompts and arrivals repeatable; default: random, and reported.")
    plan: str | None = _option(None, "Predict for this model beside what is measured; see `twostroke plan`.")
    hardware: str = _option("this", "Where the server runs, for --plan: a catalogue name or `this`.")
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._check_range("shared_prefix", self.shared_prefix, 0, 1)
        self._check_range("turns", self.turns, 1, 10_000)
        self._check_range("ramp", self.ramp, 0, 86_400)
        self._check_range("warmup", self.warmup, 0, 100_000)
        self._check_range("timeout", self.timeout, 0.001, 86_400)
        self._check_range("requests", self.requests, 1, 10_000_000)
        self._check_range("seconds", self.seconds, 0.001, 7 * 86_400)
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed must be from 0 to 2^64 - 1, not {self.seed}")
        for name in ("endpoint", "arrivals", "shape"):
            self._check_choice(name)
        if self.concurrency is not None and self.rate is not None:
            raise ConfigError("concurrency (closed loop) and rate (open loop) exclude each other")
        if self.dataset is not None and (self.shape or self.prompt_tokens or self.turns > 1 or self.shared_prefix):
            raise ConfigError("dataset has its own prompts: shape, prompt_tokens, turns, shared_prefix are not for it")
        if self.shape is not None and self.prompt_tokens is not None and self.output_tokens is not None:
            raise ConfigError("shape says nothing where both prompt_tokens and output_tokens are given")

    def _check_range(self, name: str, value: float | None, low: float, high: float) -> None:
        if value is not None and not low <= value <= high:
            raise ConfigError(f"{name} must be from {low:g} to {high:g}, not {value:g}")

    def _check_choice(self, name: str) -> None:
        choices = next(known for known in fields(self) if known.name == name).metadata["choices"]
        value = getattr(self, name)
        if value is not None and value not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
