"""EngineConfig: the engine's few settings and their ranges."""

from dataclasses import dataclass, fields

from twostroke.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of an engine. Raises ConfigError where one is below 1.

    vocab_size        token ids are 0 .. vocab_size
    context_length    most tokens of a request, prompt and answer together
    max_step_tokens   most rows of a step, all requests together; the executor's own limit applies too
    max_chunk_tokens  most rows of one request in a step
    max_running       most requests that hold blocks at a time
    """

    vocab_size: int
    context_length: int
    max_step_tokens: int = 512
    max_chunk_tokens: int = 512
    max_running: int = 64

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ConfigError(f"{field.name} must be at least 1, not {getattr(self, field.name)}")
