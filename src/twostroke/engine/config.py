"""EngineConfig: the engine's few settings and their ranges."""

import math
from dataclasses import dataclass, fields

from twostroke.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of an engine. Raises ConfigError where a number is below 1.

    vocab_size        token ids are 0 .. vocab_size
    context_length    most tokens of a request, prompt and answer together
    max_step_tokens   most rows of a step, all requests together; the executor's own limit applies too
    max_chunk_tokens  most rows of one request in a step
    max_running       most requests that hold blocks at a time
    prefix_cache      full blocks are kept for later requests that begin alike
    reuse_generated   blocks of generated rows may begin a later prompt. They have the numerics of decode, so that
                      answers then depend on what was asked before
    speculation       few answers at a time may be drafted from what they said before, where that is faster
    tpot_target       seconds that a step may take while answers run and prompts are computed; None shares the time
                      equally among all, prompts having half of it at least
    kv_disk           directory for blocks that the pool has no room for; they outlive the process. None keeps none
    kv_disk_bytes     most bytes of files in it
    model_id          what keys and values depend on beside the tokens: the model's files, the type of the cache
    """

    vocab_size: int
    context_length: int
    max_step_tokens: int = 512
    max_chunk_tokens: int = 512
    max_running: int = 64
    prefix_cache: bool = True
    reuse_generated: bool = False
    speculation: bool = True
    tpot_target: float | None = None
    model_id: str = ""
    kv_disk: str | None = None
    kv_disk_bytes: int = 4 * 2**30

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is int and value < 1:
                raise ConfigError(f"{field.name} must be at least 1, not {value}")
        if self.tpot_target is not None and not 0 < self.tpot_target < math.inf:
            raise ConfigError(f"tpot_target must be a number of seconds above 0, not {self.tpot_target}")
