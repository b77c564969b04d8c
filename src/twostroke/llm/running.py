"""Running: a loaded model with its engine. Owns how the one becomes the other; an LLM gives it up on closing."""

from typing import NamedTuple, Self

from twostroke.engine.config import EngineConfig
from twostroke.engine.engine import Engine
from twostroke.engine.loop import EngineLoop
from twostroke.llm.config import LLMConfig
from twostroke.llm.loading import Loaded


class Running(NamedTuple):
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
                speculation=config.speculation,
                reuse_generated=config.reuse_generated,
                tpot_target=config.tpot_target,
                model_id=_model_id(loaded, config) if config.kv_disk else "",
                kv_disk=config.kv_disk,
                kv_disk_bytes=int(config.kv_disk_size * 2**30),
            ),
        )
        return cls(loaded, engine, EngineLoop(engine))

    def close(self) -> None:
        """Keeps on disk, where that was asked for, what the prefix cache holds. Waits for a step that runs.

        Of an engine that a fault has stopped nothing is kept.
        """
        with self.loop.paused():
            if self.loop.error is None:
                self.engine.close()


def _model_id(loaded: Loaded, config: LLMConfig) -> str:
    """What keys and values depend on beside the tokens: the model's files, how they are used, the core's build, and the
    instruction set, of which the bits of prompt rows are."""
    files = sorted(loaded.path.iterdir()) if loaded.path.is_dir() else [loaded.path]
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    core = (loaded.executor.build, loaded.executor.isa)
    return repr((stats, config.weights, config.kv, loaded.context, core))
