"""A fake executor whose text depends on every block id, phase and position, and engines made with it."""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from twostroke.engine.config import EngineConfig
from twostroke.engine.engine import Engine
from twostroke.engine.events import Event, Finished, HiddenRows, NewToken
from twostroke.engine.request import GenerationParams, Request
from twostroke.native.batch import Batch, BatchChunk, ByteArray, FloatArray, IntArray, Sampling, StepResult
from twostroke.program.builder import Builder
from twostroke.program.cost import CostModel, Storage
from twostroke.program.passes import fuse
from twostroke.program.phase import Phase
from twostroke.program.program import Program
from twostroke.program.values import CacheSpec

VOCAB_SIZE = 211


def tiny_program(dim: int = 16, windows: tuple[int | None, ...] = (None, 24)) -> Program:
    b = Builder()
    x = b.embed("token_embd", VOCAB_SIZE, dim)
    for layer, window in zip(b.layers(len(windows)), windows, strict=True):
        q, k, v = (b.linear(x, layer / f"attn_{name}", 16) for name in "qkv")
        attended = b.attention(q, k, v, CacheSpec(layer / "attn", 2, 8, window))
        x = b.add(x, b.linear(attended, layer / "attn_output", dim))
    b.output("logits", b.linear(b.output_rows(x), "output", VOCAB_SIZE))
    return fuse(b.build())


def tiny_cost(dim: int = 16, windows: tuple[int | None, ...] = (None, 24)) -> CostModel:
    program = tiny_program(dim, windows)
    return CostModel(program, Storage(dict.fromkeys(program.weights, 4.5)))


class FakeExecutor:
    """Keeps (token, phase) in blocks; an output is a hash of what its row sees through the block table.

    So a wrong or stale block, a row computed in the wrong phase, a missing row and a wrong draw counter each change the
    text. Blocks start filled with -1, which no row may see.
    """

    def __init__(
        self, num_blocks: tuple[int, ...] = (256, 256), block_tokens: int = 16, step_tokens: int = 512
    ) -> None:
        self.block_tokens = block_tokens
        self.num_blocks = num_blocks
        self.max_step_tokens = step_tokens
        self.cost = tiny_cost()
        self.blocks = [np.full((count, block_tokens), -1, np.int64) for count in num_blocks]
        self.batches: list[Batch] = []
        self.num_ahead = 0  # of them, that were laid out before their tokens were known
        self.fails_at: int | None = None

    @property
    def block_bytes(self) -> int:
        return len(self.blocks) * self.block_tokens * 8

    def export_blocks(self, block_ids: Sequence[int]) -> ByteArray:
        held = [pool[block_id] for pool, block_id in zip(self.blocks, block_ids, strict=True)]
        return np.concatenate(held).view(np.uint8)

    def import_blocks(self, block_ids: Sequence[int], data: ByteArray) -> None:
        held = np.split(data.view(np.int64), len(self.blocks))
        for pool, block_id, content in zip(self.blocks, block_ids, held, strict=True):
            pool[block_id] = content

    def submit(self, batch: Batch, output: str | None = None) -> Batch:
        self.start(batch)
        return self.batches[-1]

    def lay_out(self, batch: Batch, output: str | None = None) -> Batch:
        return batch

    def start(self, batch: Batch, token_ids: IntArray | None = None) -> None:
        if self.fails_at == len(self.batches):
            self.fails_at = None
            raise OSError("the fake executor was told to fail")
        if token_ids is not None:
            self.num_ahead += 1
            for chunk, token_id in zip(batch.chunks, token_ids, strict=True):
                chunk.token_ids[:] = token_id
        assert 0 < batch.num_tokens <= self.max_step_tokens
        self.batches.append(batch)
        self._write(batch)

    def collect(self, handle: Batch) -> StepResult:
        assert handle is self.batches[-1]
        ids, logprobs, tops = [], [], []
        for chunk in handle.chunks:
            end = chunk.start + len(chunk.token_ids)
            for index, row in enumerate(range(end - chunk.num_outputs, end)):
                token, logprob = self._output(chunk, row, index)
                ids.append(token)
                logprobs.append(logprob if chunk.sampling.num_logprobs >= 0 else np.nan)
                tops.append(max(0, chunk.sampling.num_logprobs))
        width = max(tops, default=0)
        top_ids = np.array([[n if n < count else -1 for n in range(width)] for count in tops], np.int32)
        top_logprobs = np.where(top_ids < 0, np.nan, -0.5 * top_ids).astype(np.float32)
        shape = (len(ids), width)
        return StepResult(
            np.array(ids, np.int32),
            np.array(logprobs, np.float32),
            top_ids.reshape(shape),
            top_logprobs.reshape(shape),
            1e-6,
        )

    def collect_value(self, handle: Batch) -> tuple[StepResult, FloatArray]:
        """Two numbers a row, a hash of what it sees."""
        rows = []
        for chunk in handle.chunks:
            end = chunk.start + len(chunk.token_ids)
            rows += [divmod(zlib.crc32(self._seen(chunk, r)), 1 << 16) for r in range(end - chunk.num_outputs, end)]
        return self.collect(handle), np.array(rows, np.float32).reshape(-1, 2)

    def _write(self, batch: Batch) -> None:
        written: set[tuple[int, int]] = set()
        for chunk in batch.chunks:
            end = chunk.start + len(chunk.token_ids)
            for group, block_ids in enumerate(chunk.block_ids):
                assert len(block_ids) == -(-end // self.block_tokens)
                touched = {(group, int(block)) for block in block_ids[chunk.start // self.block_tokens :]}
                assert not touched & written, "two requests write one block"
                written |= touched
                for position, token in zip(range(chunk.start, end), chunk.token_ids, strict=True):
                    slot = block_ids[position // self.block_tokens], position % self.block_tokens
                    self.blocks[group][slot] = 2 * token + (chunk.phase is Phase.DECODE)

    def _seen(self, chunk: BatchChunk, row: int) -> bytes:
        seen = np.stack([self.blocks[g][ids].reshape(-1)[: row + 1] for g, ids in enumerate(chunk.block_ids)])
        assert seen.min() >= 0, "a row sees tokens that were never computed"
        return seen.tobytes()

    def _output(self, chunk: BatchChunk, row: int, index: int) -> tuple[int, float]:
        state = zlib.crc32(self._seen(chunk, row))
        sampling = chunk.sampling
        if chunk.history is not None:
            state ^= zlib.crc32(chunk.history[: row + 1].tobytes())
        if sampling.temperature:
            state ^= zlib.crc32(f"{sampling.seed} {sampling.choice} {chunk.output_index + index}".encode())
        target = -1 if chunk.targets is None else int(chunk.targets[index])
        allowed = _allowed(chunk)
        token = target if target >= 0 else allowed[state % len(allowed)]
        return token, -(zlib.crc32(f"{state} {token}".encode()) % 10_000) / 1000


def _allowed(chunk: BatchChunk) -> Sequence[int]:
    if chunk.mask is None:
        return range(VOCAB_SIZE)
    assert chunk.mask.shape == (-(-VOCAB_SIZE // 32),)
    return np.flatnonzero(np.unpackbits(chunk.mask.view(np.uint8), bitorder="little")).tolist()


@dataclass
class Answer:
    """What the events of one request said."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    alternatives: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    hidden: list[tuple[float, ...]] = field(default_factory=list)
    finished: Finished | None = None


def gather(events: list[Event], answers: dict[Request, Answer]) -> None:
    for event in events:
        answer = answers.setdefault(event.request, Answer())
        assert answer.finished is None, "an event after the last"
        if isinstance(event, NewToken):
            answer.ids.append(event.token_id)
            answer.logprobs.append(event.logprob)
            answer.alternatives.append(event.alternatives)
        elif isinstance(event, HiddenRows):
            answer.hidden += map(tuple, event.rows.tolist())
        else:
            answer.finished = event


@dataclass
class Bench:
    """An engine with its fake executor, and the ways tests use it."""

    executor: FakeExecutor
    engine: Engine
    answers: dict[Request, Answer] = field(default_factory=dict)

    def step(self) -> list[Event]:
        events = self.engine.step()
        gather(events, self.answers)
        self.check_blocks()
        return events

    def run(self, *requests: Request, max_steps: int = 100_000) -> list[Answer]:
        for request in requests:
            self.engine.submit(request)
        for _ in range(max_steps):
            if not self.engine.has_work:
                break
            self.step()
        assert not self.engine.has_work
        return [self.answers[request] for request in requests]

    def check_blocks(self) -> None:
        """Every block is free or held by those whose table or prefix cache has it; unnamed ones by one alone."""
        queues, prefix = self.engine._scheduler.queues, self.engine.cache.prefix
        assert not any(request.table.num_blocks for request in queues.waiting)
        named = list(prefix._named.values()) if prefix else []
        for group, pool in enumerate(self.engine.cache.pools):
            held = Counter(i for r in queues.running for i in r.table.first(r.table.num_blocks)[group].tolist())
            kept = {block.block_ids[group]: block.num_users for block in named}
            assert all(held[block_id] == num_users for block_id, num_users in kept.items())
            assert all(count == 1 for block_id, count in held.items() if block_id not in kept)
            assert len(held.keys() | kept.keys()) == pool.num_blocks - pool.num_free
            assert all(pool.num_holders(i) == held[i] + (i in kept) for i in held.keys() | kept.keys())


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    def make(num_blocks: tuple[int, ...] = (256, 256), *, context: int = 2048, **settings: int) -> Bench:
        # rows alone bound a step, not the time that the fake executor takes
        settings = {"prefix_cache": False, "speculation": False, "tpot_target": 1e9, **settings}
        executor = FakeExecutor(num_blocks, step_tokens=settings.pop("executor_rows", 512))
        if dim := settings.pop("dim", 0):  # mostly weights, as a real model
            executor.cost = tiny_cost(dim, (None, None))
        return Bench(executor, Engine(executor, EngineConfig(VOCAB_SIZE, context, **settings)))

    return make


@pytest.fixture
def make_request() -> Callable[..., Request]:
    def make(
        prompt: list[int] | int,
        max_tokens: int | None = 8,
        *,
        forced: list[int] | None = None,
        constraint=None,
        **params,
    ):
        ids = prompt if isinstance(prompt, list) else random_ids(prompt, seed=prompt)
        sampling_fields = {name: params.pop(name) for name in list(params) if name in Sampling.__dataclass_fields__}
        generation = GenerationParams(max_tokens, sampling=Sampling(**sampling_fields), **params)
        return Request(f"r{len(ids)}", ids, generation, forced or [], constraint)

    return make


def random_ids(count: int, seed: int) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(0, VOCAB_SIZE, count).tolist()
    return ids
