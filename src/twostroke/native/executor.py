"""The native executor: a Program made fast. Owns the checks of everything that crosses into C++.

`submit` checks a batch and starts it (`lay_out` and `start` are its halves), `collect` takes part in it and waits:
sampling included, without the GIL. In between the caller's thread is free, while the other threads are at work.
Not thread-safe: one thread at a time (the engine's loop sees to that).
"""

import os
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from twostroke.errors import ConfigError
from twostroke.native import _core
from twostroke.native.batch import Batch, BatchChunk, ByteArray, FloatArray, IntArray, StepResult
from twostroke.native.lower import Lowering, sampled_output
from twostroke.program.cost import CostModel, Storage
from twostroke.program.passes import fuse
from twostroke.program.phase import Phase
from twostroke.program.program import Program
from twostroke.weights.source import WeightSource

KvName = Literal["f32", "f16", "bf16", "q8_0"]
KV_TYPES: dict[str, int] = {"f32": 0, "f16": 1, "bf16": 2, "q8_0": 3}
KV_BITS: dict[str, float] = {"f32": 32.0, "f16": 16.0, "bf16": 16.0, "q8_0": 8.5}
BLOCK_TOKENS: int = _core.block_tokens


def available_isas() -> tuple[str, ...]:
    """Instruction sets this machine can run, slowest first."""
    return tuple(_core.available_isas())


def pick_isa(requested: str | None) -> str:
    """The best instruction set, or the one asked for. Raises ConfigError where the machine lacks it."""
    available = available_isas()
    if requested is None:
        return available[-1]
    if requested not in available:
        raise ConfigError(f"instruction set {requested!r} is not among this machine's: {', '.join(available)}")
    return requested


class ExecutorConfig(NamedTuple):
    """num_blocks: KV blocks of 16 tokens, one number a cache group. max_context: tokens a request may reach."""

    num_threads: int
    num_blocks: tuple[int, ...]
    max_context: int
    max_step_tokens: int = 512
    kv_type: KvName = "f16"
    isa: str | None = None


class Handle(NamedTuple):
    """A step that was laid out: what it reads, and the arrays that its outputs come to. `rows`: the tokens of them all,
    which `arrays` refer to."""

    batch: Batch
    arrays: _core.StepArrays
    rows: IntArray
    token_ids: IntArray
    logprobs: FloatArray
    top_ids: IntArray
    top_logprobs: FloatArray
    value_id: int
    value: FloatArray | None


class NativeExecutor:
    """Packs the weights of `program` (fused here unless `fused=False`) and runs batches."""

    def __init__(self, program: Program, source: WeightSource, config: ExecutorConfig, *, fused: bool = True) -> None:
        self.program = fuse(program) if fused else program
        self.config = config
        self.isa = pick_isa(config.isa)
        self.block_tokens = BLOCK_TOKENS
        self.num_blocks = config.num_blocks
        self.max_step_tokens = config.max_step_tokens
        self.vocab_size = self.program.values[sampled_output(self.program)].dim
        self._core = _start_core(self.isa, config)
        self._process = os.getpid()
        lowering = Lowering(self._core, self.program, source)
        lowering.run()
        self._value_ids = lowering.values
        bits = {name: 8.0 * source.info(name).num_bytes / w.num_elements for name, w in self.program.weights.items()}
        self.storage = Storage(bits, KV_BITS[config.kv_type])
        self.cost = CostModel(self.program, self.storage)

    @property
    def build(self) -> str:
        """Another one where the core was built anew: the bits of what it computes may then be others."""
        found = os.stat(_core.__file__)
        return f"{found.st_size}-{found.st_mtime_ns}"

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed weights in memory."""
        return self._core.weight_bytes

    @property
    def block_bytes(self) -> int:
        """Bytes that a block of every cache group takes together."""
        return self._core.block_bytes

    @property
    def kv_pool_bytes(self) -> int:
        return self._core.kv_bytes

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the activation arena and of scratch."""
        return self._core.scratch_bytes

    def probe_weights(self, seconds: float) -> float:
        """Bytes per second at which this machine reads these packed weights, by the best kernel in about `seconds`."""
        return self._core.probe_weights(seconds)

    def poison(self) -> None:
        """For tests: fill arena, scratch and KV pools with NaN."""
        self._core.poison()

    def export_blocks(self, block_ids: Sequence[int]) -> ByteArray:
        """The keys and values of blocks, one a cache group, as bytes. Raises ValueError for wrong ids."""
        out = np.empty(self._core.block_bytes, np.uint8)
        self._core.export_blocks(block_ids, out)
        return out

    def import_blocks(self, block_ids: Sequence[int], data: ByteArray) -> None:
        """Makes blocks hold what `export_blocks` gave. Raises ValueError for wrong ids or another number of bytes."""
        self._core.import_blocks(block_ids, data)

    def submit(self, batch: Batch, output: str | None = None) -> Handle:
        """Check a batch and start it; with it, the program's named output, for `collect_value`.

        What it was given is read until it is collected. A handle that is dropped ends its step first. Raises ValueError
        for numbers that a correct engine never sends, and ConfigError in a process forked after the executor was made:
        its threads are not there.
        """
        handle = self.lay_out(batch, output)
        self.start(handle)
        return handle

    def lay_out(self, batch: Batch, output: str | None = None) -> Handle:
        """All of `submit` but starting, which may be done while another step is under way. Raises what that does."""
        self._check_process()
        rows = np.concatenate([chunk.token_ids for chunk in batch.chunks]) if batch.chunks else np.empty(0, np.int32)
        arrays = self._arrays(batch, rows)
        num_outputs = batch.num_outputs
        num_top = max(0, *(chunk.sampling.num_logprobs for chunk in batch.chunks))
        value_id, value = -1, None
        if output is not None:
            name = self.program.outputs[output]
            value_id = self._value_ids[name]
            value = np.empty((num_outputs, self.program.values[name].dim), np.float32)
        return Handle(
            batch,
            arrays,
            rows,
            np.empty(num_outputs, np.int32),
            np.empty(num_outputs, np.float32),
            np.full((num_outputs, num_top), -1, np.int32),
            np.full((num_outputs, num_top), np.nan, np.float32),
            value_id,
            value,
        )

    def start(self, handle: Handle, token_ids: IntArray | None = None) -> None:
        """Start a step that was laid out: once. `token_ids`, (num_tokens,), take the place of the batch's; they are
        those that a step before brought, and not checked again."""
        self._check_process()
        if token_ids is not None:
            handle.rows[:] = token_ids
        outputs = handle.token_ids, handle.logprobs, handle.top_ids, handle.top_logprobs
        self._core.begin(handle.arrays, *outputs, handle.value_id, handle.value)

    def collect(self, handle: Handle) -> StepResult:
        """Take part in the step, and return its outputs once it is done: again, if one asks again."""
        self._check_process()
        seconds = self._core.end(handle.arrays)
        return StepResult(handle.token_ids, handle.logprobs, handle.top_ids, handle.top_logprobs, seconds)

    def collect_value(self, handle: Handle) -> tuple[StepResult, FloatArray]:
        """As `collect`, and the named output that was asked for, (num_outputs, dim). Raises ValueError without one."""
        if handle.value is None:
            raise ValueError("no output of the program was asked for when the step was submitted")
        return self.collect(handle), handle.value

    def _arrays(self, batch: Batch, rows: IntArray) -> _core.StepArrays:
        chunks = batch.chunks
        if not chunks or any(len(chunk.block_ids) != len(self.num_blocks) for chunk in chunks):
            raise ValueError(f"a step needs chunks, each with {len(self.num_blocks)} block tables")
        return self._core.lay_out(
            rows,
            np.array([_shape_row(chunk) for chunk in chunks], dtype=np.int64),
            [ids for chunk in chunks for ids in chunk.block_ids],
            [chunk.targets for chunk in chunks],
            [chunk.history if chunk.sampling.has_penalties else None for chunk in chunks],
            np.array([_sampling_row(chunk) for chunk in chunks], dtype=np.float64),
            np.array([_counter_row(chunk) for chunk in chunks], dtype=np.int64),
            [_bias_ids(chunk) for chunk in chunks],
            [_bias_values(chunk) for chunk in chunks],
            [chunk.mask for chunk in chunks],
        )

    def _check_process(self) -> None:
        if self.config.num_threads > 1 and os.getpid() != self._process:
            raise ConfigError("a model cannot run in a fork of the process that loaded it; load it in the child")


def _start_core(isa: str, config: ExecutorConfig) -> _core.Executor:
    """The core with its threads. Raises ConfigError where the system does not give so many."""
    try:
        return _core.Executor(
            isa,
            config.num_threads,
            config.max_step_tokens,
            config.max_context,
            KV_TYPES[config.kv_type],
            list(config.num_blocks),
        )
    except RuntimeError as error:
        raise ConfigError(f"threads: the system does not start {config.num_threads}: {error}") from None


def _shape_row(chunk: BatchChunk) -> tuple[int, ...]:
    return (chunk.start, len(chunk.token_ids), chunk.num_outputs, chunk.phase is Phase.PREFILL)


def _sampling_row(chunk: BatchChunk) -> tuple[float, ...]:
    s = chunk.sampling
    return (s.temperature, s.top_p, s.min_p, s.repetition_penalty, s.presence_penalty, s.frequency_penalty)


def _counter_row(chunk: BatchChunk) -> tuple[int, ...]:
    s = chunk.sampling
    seed = s.seed & (2**64 - 1)
    signed = seed - 2**64 if seed >= 2**63 else seed
    num_logprobs = s.num_logprobs
    return (s.top_k, s.choice, num_logprobs, chunk.output_index, chunk.num_prompt_tokens, signed)


def _bias_ids(chunk: BatchChunk) -> np.ndarray[tuple[int], np.dtype[np.int32]] | None:
    bias: Sequence[tuple[int, float]] = chunk.sampling.logit_bias
    return np.array([token_id for token_id, _ in bias], np.int32) if bias else None


def _bias_values(chunk: BatchChunk) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    bias: Sequence[tuple[int, float]] = chunk.sampling.logit_bias
    return np.array([value for _, value in bias], np.float64) if bias else None
