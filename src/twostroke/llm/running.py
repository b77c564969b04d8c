"""Running: a loaded model with its engine. Owns how the one becomes the other; an LLM gives it up on closing."""

from dataclasses import dataclass
from typing import Self

from twostroke.engine.config import EngineConfig
from twostroke.engine.engine import Engine
from twostroke.engine.loop import EngineLoop
from twostroke.llm.config import LLMConfig
from twostroke.llm.loading import Loaded


@dataclass(frozen=True, slots=True)
class Running:
    """The engine belongs to whoever drives `loop`; other threads read its counters and its ledger's totals."""

    loaded: Loaded
    engine: Engine
    loop: EngineLoop

    @classmethod
    def of(cls, loaded: Loaded, config: LLMConfig) -> Self:
        engine = Engine(
            loaded.executor,
            EngineConfig(
                vocab_size=loaded.model.vocab_size,
                context_length=loaded.context,
                max_step_tokens=config.max_step_tokens,
                max_chunk_tokens=config.max_step_tokens,
                max_running=config.max_batch,
            ),
        )
        return cls(loaded, engine, EngineLoop(engine))
