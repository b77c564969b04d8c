"""From a configuration to a model ready to run. Owns the order: what can be refused is
refused before anything is allocated.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from twostroke.errors import ContextLengthError, TwostrokeError
from twostroke.llm.config import LLMConfig
from twostroke.llm.memory import MemoryPlan, plan_memory
from twostroke.llm.sampling import SamplingDefaults
from twostroke.models.config import ModelConfig
from twostroke.models.load import Model, load_model
from twostroke.native.executor import ExecutorConfig, KvName, NativeExecutor, pick_isa
from twostroke.native.threads import ThreadChoice, choose_threads
from twostroke.program.passes import fuse
from twostroke.program.program import Program
from twostroke.roofline.memory import available_memory
from twostroke.text.chat import ChatTemplate
from twostroke.text.chat_encoder import ChatEncoder
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.fetch import ProgressCallback, ensure


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory. `encoder` is the error to raise where the model has no usable chat template."""

    path: Path
    model: ModelConfig
    context: int
    threads: ThreadChoice
    memory: MemoryPlan
    defaults: SamplingDefaults
    tokenizer: Tokenizer
    encoder: ChatEncoder | TwostrokeError
    executor: NativeExecutor


def load(config: LLMConfig, progress: ProgressCallback) -> Loaded:
    """Fetch the model if need be, check that it fits, then pack its weights while the tokenizer is built.

    Raises what those raise: ModelNotFoundError, FetchError, ModelFileError, UnsupportedModelError, ConfigError,
    ContextLengthError, NotEnoughMemoryError.
    """
    threads = choose_threads(config.threads)
    pick_isa(config.isa)
    path = ensure(config.model, progress=progress)
    model = load_model(path)
    with closing(model.source), ThreadPoolExecutor(1) as background:
        context = _context(config, model.config)
        program = fuse(model.program)
        memory = plan_memory(
            program,
            model.source,
            config,
            context=context,
            num_threads=threads.num_threads,
            available=available_memory(),
        )
        text = background.submit(_load_text, model.metadata)
        defaults = SamplingDefaults.from_gguf(model.metadata)
        executor = _executor(program, model, config, threads, memory, context)
        tokenizer, encoder = text.result()
    return Loaded(path, model.config, context, threads, memory, defaults, tokenizer, encoder, executor)


def _context(config: LLMConfig, model: ModelConfig) -> int:
    if config.context is None:
        return model.context_length
    if config.context > model.context_length:
        raise ContextLengthError(
            f"context of {config.context} tokens: {model.name} was made for {model.context_length}"
        )
    return config.context


def _executor(
    program: Program, model: Model, config: LLMConfig, threads: ThreadChoice, memory: MemoryPlan, context: int
) -> NativeExecutor:
    settings = ExecutorConfig(
        threads.num_threads, memory.num_blocks, context, config.max_step_tokens, cast("KvName", config.kv), config.isa
    )
    return NativeExecutor(program, model.source, settings, fused=False)


def _load_text(metadata: Mapping[str, Any]) -> tuple[Tokenizer, ChatEncoder | TwostrokeError]:
    tokenizer = Tokenizer.from_gguf(metadata)
    try:
        return tokenizer, ChatEncoder(ChatTemplate.from_gguf(metadata), tokenizer)
    except TwostrokeError as error:  # a base model can still complete texts
        return tokenizer, error
