"""From a configuration to a model ready to run. Owns the order: what can be refused is
refused before anything is allocated.
"""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from twostroke.errors import ContextLengthError, ModelFileError, TwostrokeError
from twostroke.llm.config import LLMConfig
from twostroke.llm.embedding import EmbeddingSettings
from twostroke.llm.locking import check_lockable, lock_memory
from twostroke.llm.memory import MemoryPlan, plan_memory
from twostroke.llm.sampling import SamplingDefaults
from twostroke.models.config import ModelConfig
from twostroke.models.load import Model, load_model
from twostroke.models.registry import OUTPUTS
from twostroke.native.executor import ExecutorConfig, KvName, NativeExecutor, pick_isa
from twostroke.native.threads import ThreadChoice, choose_threads
from twostroke.program.passes import fuse
from twostroke.program.program import Program
from twostroke.roofline.memory import available_memory
from twostroke.text.chat import ChatTemplate
from twostroke.text.chat_encoder import ChatEncoder
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.fetch import ProgressCallback, ensure
from twostroke.weights.source import WeightSource
from twostroke.weights.tensor_types import TensorType


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory. `encoder` is the error to raise where the model has no usable chat template."""

    path: Path
    model: ModelConfig
    context: int
    threads: ThreadChoice
    memory: MemoryPlan
    defaults: SamplingDefaults
    embedding: EmbeddingSettings
    tokenizer: Tokenizer
    encoder: ChatEncoder | TwostrokeError
    executor: NativeExecutor
    warnings: tuple[str, ...]


def load(config: LLMConfig, progress: ProgressCallback) -> Loaded:
    """Fetch the model if need be, check that it fits, then pack its weights while the tokenizer is built.

    Raises what those raise: ModelNotFoundError, FetchError, ModelFileError, UnsupportedModelError, ConfigError,
    ContextLengthError, NotEnoughMemoryError.
    """
    threads = choose_threads(config.threads)
    pick_isa(config.isa)
    path = ensure(config.model, progress=progress)
    model = load_model(path, ("hidden",) if config.embed_only else OUTPUTS, context=config.context)
    with closing(model.source), ThreadPoolExecutor(1) as background:
        context = _context(config, model.config)
        program = fuse(model.program)
        source, warnings = _weights(model, config, threads.num_threads)
        memory = plan_memory(
            program,
            source,
            config,
            context=context,
            num_threads=threads.num_threads,
            available=available_memory(),
        )
        if config.mlock:
            check_lockable(sum(memory.parts().values()))
        text = background.submit(load_text, path, model.metadata)
        defaults, embedding = _settings(path, model.metadata)
        executor = _executor(program, source, config, threads, memory, context)
        tokenizer, encoder = text.result()
        if config.mlock:
            lock_memory()
    return Loaded(
        path, model.config, context, threads, memory, defaults, embedding, tokenizer, encoder, executor, warnings
    )


def _weights(model: Model, config: LLMConfig, num_threads: int) -> tuple[WeightSource, tuple[str, ...]]:
    """The weights as they are to be packed, and what there is to say about the model."""
    if config.weights is None:
        return model.source, model.warnings
    from twostroke.native.quantize import quantize_natively  # the quantisers, which most runs do without
    from twostroke.weights.quantized_source import QuantizedSource

    kind = TensorType[config.weights.upper()]
    source = QuantizedSource(model.source, kind, pack=quantize_natively, num_threads=num_threads)
    others = Counter(fallback.type.name for fallback in source.fallbacks if fallback.name in model.program.weights)
    if not others:
        return source, model.warnings
    kinds = " and ".join(f"{count} as {name}" for name, count in sorted(others.items()))
    return source, (
        *model.warnings,
        f"weights {config.weights}: {kinds} instead, as the rows of these matrices are no whole blocks",
    )


def _context(config: LLMConfig, model: ModelConfig) -> int:
    if config.context is None:
        return model.context_length
    if config.context > model.context_length:
        raise ContextLengthError(
            f"context of {config.context} tokens: {model.name} was made for {model.context_length}"
        )
    return config.context


def _executor(
    program: Program, source: WeightSource, config: LLMConfig, threads: ThreadChoice, memory: MemoryPlan, context: int
) -> NativeExecutor:
    settings = ExecutorConfig(
        threads.num_threads, memory.num_blocks, context, config.max_step_tokens, cast("KvName", config.kv), config.isa
    )
    return NativeExecutor(program, source, settings, fused=False)


def _settings(path: Path, metadata: Mapping[str, Any]) -> tuple[SamplingDefaults, EmbeddingSettings]:
    """What the model says about sampling and embeddings. Raises ModelFileError, naming the model."""
    try:
        if path.is_dir():
            return SamplingDefaults.from_hf(path), EmbeddingSettings.from_hf(path)
        return SamplingDefaults.from_gguf(metadata), EmbeddingSettings.from_gguf(metadata)
    except ModelFileError as error:
        text = str(error)
        raise ModelFileError(text if text.startswith(str(path)) else f"{path}: {text}") from None


def load_text(path: Path, metadata: Mapping[str, Any]) -> tuple[Tokenizer, ChatEncoder | TwostrokeError]:
    """Tokenizer and chat encoder, from a directory's files or a GGUF file's metadata. Where there is no usable chat
    template the encoder is the error to raise: a base model can still complete texts.

    Raises ModelFileError and UnsupportedModelError, naming the model, for a tokenizer that is missing, malformed or not
    supported.
    """
    try:
        tokenizer = Tokenizer.from_hf(path) if path.is_dir() else Tokenizer.from_gguf(metadata)
    except TwostrokeError as error:
        raise type(error)(f"{path}: {error}") from None
    try:
        template = ChatTemplate.from_hf(path) if path.is_dir() else ChatTemplate.from_gguf(metadata)
        return tokenizer, ChatEncoder(template, tokenizer)
    except TwostrokeError as error:
        return tokenizer, error
