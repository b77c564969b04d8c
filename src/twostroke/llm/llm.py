"""LLM: one loaded model for any number of threads. Owns the way from texts, messages and ids to requests, and back."""

from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, Self, cast, overload

import numpy as np
import numpy.typing as npt

from twostroke.engine.account import PhaseTotals
from twostroke.engine.request import GenerationParams, Request
from twostroke.errors import InvalidRequestError, TwostrokeError
from twostroke.llm.config import LLMConfig, SamplingParams
from twostroke.llm.embedding import Embedding, EmbeddingSettings
from twostroke.llm.generation import Generation
from twostroke.llm.loading import load
from twostroke.llm.memory import MemoryPlan
from twostroke.llm.results import Completion, Message, Prompt, Score
from twostroke.llm.running import Running
from twostroke.llm.sampling import SamplingDefaults
from twostroke.llm.together import run_together
from twostroke.models.config import ModelConfig
from twostroke.native.threads import ThreadChoice
from twostroke.program.phase import Phase
from twostroke.text.chat_encoder import ChatPrompt
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.aliases import DEFAULT_MODEL
from twostroke.weights.fetch import ProgressCallback


class LLM:
    """A model that is loaded and answers. Thread-safe: requests of all threads run together, up to `max_batch` of them.

        with LLM("smollm2") as llm:
            print(llm.generate("The capital of France is", temperature=0, max_tokens=8).text)
            for piece in llm.chat([{"role": "user", "content": "Hi"}], stream=True):
                print(piece, end="", flush=True)

    Keywords of the constructor are the fields of `LLMConfig`, those of `generate` and `chat` the fields of
    `SamplingParams`. What an answer says depends on its own request alone, never on others that run with it.
    """

    def __init__(
        self, model: str | Path = DEFAULT_MODEL, *, progress: ProgressCallback | None = None, **options: Any
    ) -> None:
        """Loads `model`, fetching it first where it has a name and is not in the cache; `progress` sees that.

        Raises ConfigError for a keyword or value that is none, ModelNotFoundError, FetchError, ModelFileError,
        UnsupportedModelError, ContextLengthError for a context the model does not have, and NotEnoughMemoryError,
        with the sum, before anything is allocated.
        """
        started = perf_counter()
        self.config = LLMConfig.of(model=str(model), **options)
        self._running: Running | None = Running.of(load(self.config, progress or (lambda _: None)), self.config)
        self._labels = count()
        self.load_seconds = perf_counter() - started

    @overload
    def generate(self, prompts: Prompt, *, stream: Literal[False] = False, **sampling: Any) -> Completion: ...
    @overload
    def generate(self, prompts: Prompt, *, stream: Literal[True], **sampling: Any) -> Generation: ...
    @overload
    def generate(
        self, prompts: Sequence[Prompt], *, stream: Literal[False] = False, **sampling: Any
    ) -> list[Completion]: ...
    def generate(
        self, prompts: Prompt | Sequence[Prompt], *, stream: bool = False, **sampling: Any
    ) -> Completion | Generation | list[Completion]:
        """Continues a prompt, or several together: a text, or its token ids.

        The text of control tokens in a prompt is plain text; a prompt that means them is given as ids
        (`tokenizer.encode(text, parse_special=True)`). With `stream`, returns an iterator over pieces of text.
        Raises InvalidRequestError naming a field, ContextLengthError with both numbers, NotEnoughMemoryError where
        the KV pool could never hold the request.
        """
        params = SamplingParams.of(**sampling)
        if not _is_one(prompts):
            if stream:
                raise InvalidRequestError("stream takes one prompt; start one stream for each")
            return _finish(self._start(self._ids(prompt), params) for prompt in cast("Sequence[Prompt]", prompts))
        generation = self._start(self._ids(cast("Prompt", prompts)), params)
        return generation if stream else _finish([generation])[0]

    @overload
    def chat(self, messages: Sequence[Message], *, stream: Literal[False] = False, **sampling: Any) -> Completion: ...
    @overload
    def chat(self, messages: Sequence[Message], *, stream: Literal[True], **sampling: Any) -> Generation: ...
    def chat(self, messages: Sequence[Message], *, stream: bool = False, **sampling: Any) -> Completion | Generation:
        """The assistant's answer to messages in the form of the OpenAI API, through the model's chat template.

        Raises what `generate` raises, and ChatTemplateError where the model has no template or it refuses these.
        """
        params = SamplingParams.of(**sampling)
        generation = self._start(self.render(messages).ids, params)
        return generation if stream else _finish([generation])[0]

    def render(self, messages: Sequence[Message], **options: Any) -> ChatPrompt:
        """The prompt that `chat` makes of messages: text and ids. `options` are those of `ChatEncoder.encode`, the
        template's own variables among them. Raises ChatTemplateError, InvalidRequestError."""
        encoder = self.running.loaded.encoder
        if isinstance(encoder, TwostrokeError):
            raise encoder
        return encoder.encode(messages, **options)

    def score(self, text: Prompt, phase: Literal["prefill", "decode"] | Phase = Phase.PREFILL) -> Score:
        """How likely the model finds a text of at least two tokens, each token given those before it.

        As prompt rows, or teacher-forced as generated rows ("decode"). Raises as `generate` does.
        """
        if phase not in list(Phase):
            raise InvalidRequestError(f"phase must be {' or '.join(Phase)}, not {phase!r}")
        if self.config.embed_only:
            raise InvalidRequestError("the model is loaded for embeddings only")
        ids = self._ids(text)
        if len(ids) < 2:
            raise InvalidRequestError(f"a text of {len(ids)} tokens has nothing to score; it needs at least 2")
        if phase == Phase.PREFILL:
            request = Request(str(next(self._labels)), ids, GenerationParams(max_tokens=0, prompt_logprobs=True))
        else:
            request = Request(str(next(self._labels)), ids[:1], GenerationParams(max_tokens=0), forced_ids=ids[1:])
        with self.running.loop.submit(request) as stream:
            for _ in stream:
                pass
        return Score(tuple(ids), tuple(score.logprob for score in request.scores), Phase(phase))

    def embed(
        self, texts: Prompt | Sequence[Prompt], *, pooling: str | None = None, normalize: bool | None = None
    ) -> npt.NDArray[np.float32]:
        """Embeddings of texts, or their token ids, run together: (num_texts, dim); of one text (1, dim).

        A vector is the "last" token's hidden row after the final norm, or the "mean" of all, scaled to length 1. None
        is what the model says (`embedding`). Raises InvalidRequestError for a text without tokens, ContextLengthError,
        UnsupportedModelError where the model asks for another pooling.
        """
        settings = self.embedding
        kind = settings.choose(pooling)
        prompts = [cast("Prompt", texts)] if _is_one(texts) else list(cast("Sequence[Prompt]", texts))
        ids = [[*self._ids(text), *(settings.end_ids if isinstance(text, str) else ())] for text in prompts]
        if not all(ids):
            raise InvalidRequestError(f"text {ids.index([])} to embed has no tokens")
        done = run_together(Embedding(self.running.loop, str(next(self._labels)), own, kind) for own in ids)
        unit = settings.normalize if normalize is None else normalize
        vectors = [embedding.vector(unit) for embedding in done]
        return np.stack(vectors) if vectors else np.empty((0, self.model_config.dim), np.float32)

    def totals(self, phase: Phase) -> PhaseTotals:
        """What ran in a phase since the model was loaded, all requests together."""
        return self.running.engine.ledger.summary(phase)

    def probe_weights(self, seconds: float) -> float:
        """Bytes per second at which this machine reads the model's weights; takes about `seconds`, between steps."""
        with self.running.loop.paused():
            return self.running.loaded.executor.probe_weights(seconds)

    def close(self) -> None:
        """Gives the memory back once answers that still run have ended. The object is of no use afterwards."""
        running, self._running = self._running, None
        if running is not None and self.config.kv_disk is not None:
            running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The model's file or directory."""
        return self.running.loaded.path

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was decided where the model's files contradict themselves."""
        return self.running.loaded.warnings

    @property
    def tokenizer(self) -> Tokenizer:
        return self.running.loaded.tokenizer

    @property
    def model_config(self) -> ModelConfig:
        return self.running.loaded.model

    @property
    def context(self) -> int:
        """Tokens of a request at most, prompt and answer together."""
        return self.running.loaded.context

    @property
    def defaults(self) -> SamplingDefaults:
        """What is used where a sampling keyword is not given."""
        return self.running.loaded.defaults

    @property
    def embedding(self) -> EmbeddingSettings:
        """What the model says about its embeddings."""
        return self.running.loaded.embedding

    @property
    def threads(self) -> ThreadChoice:
        """The threads that compute, and why so many."""
        return self.running.loaded.threads

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return self.running.loaded.executor.isa

    @property
    def memory(self) -> MemoryPlan:
        """The sum that was checked before loading."""
        return self.running.loaded.memory

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed weights in memory."""
        return self.running.loaded.executor.weight_bytes

    @property
    def running(self) -> Running:
        """The engine and what it runs, for a server. Raises RuntimeError once closed."""
        if self._running is None:
            raise RuntimeError("the LLM is closed")
        return self._running

    def request(
        self, ids: Sequence[int], params: SamplingParams, *, choice: int = 0, prompt_logprobs: bool = False
    ) -> Request:
        """What `generate` submits to the engine. Answers of one seed differ by `choice`.

        Raises InvalidRequestError where the model is loaded for embeddings only.
        """
        if self.config.embed_only:
            raise InvalidRequestError("the model is loaded for embeddings only")
        loaded = self.running.loaded
        generation = GenerationParams(
            max_tokens=params.max_tokens,
            stop_ids=loaded.tokenizer.eos_ids,
            ignore_eos=params.ignore_eos,
            sampling=loaded.defaults.resolve(params, choice),
            prompt_logprobs=prompt_logprobs,
        )
        return Request(str(next(self._labels)), ids, generation)

    def _start(self, ids: Sequence[int], params: SamplingParams) -> Generation:
        return Generation(self.running.loop, self.request(ids, params), self.tokenizer, params.stop_strings())

    def _ids(self, prompt: Prompt) -> Sequence[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)


def _is_one(prompts: Prompt | Sequence[Prompt]) -> bool:
    """One prompt, a text or ids, rather than several."""
    return isinstance(prompts, str) or (len(prompts) > 0 and not isinstance(prompts[0], str | Sequence))


def _finish(starts: Iterable[Generation]) -> list[Completion]:
    return [generation.completion for generation in run_together(starts)]
