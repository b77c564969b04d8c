"""Invariant 1: a request's bits depend on its own tokens and their phases, never on batch, chunks, threads, preemption.

Through the real engine and the native executor: 64 prompts on tiny random models over the whole grid, and SmolLM2 on
its corners. Ids, log-probabilities and alternatives are compared exactly with those of each request alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny import write_tiny_gguf

from twostroke.engine.config import EngineConfig
from twostroke.engine.engine import Engine
from twostroke.engine.events import Finished, NewToken
from twostroke.engine.request import GenerationParams, Request
from twostroke.models.load import Model, load_model
from twostroke.native.batch import Sampling
from twostroke.native.executor import ExecutorConfig, NativeExecutor

CONTEXT = 1024
PLENTY = 16 * CONTEXT // 16
ENOUGH = 64  # for all of SmolLM2's requests at once
SIZES = {"dim": 256, "num_heads": 8, "num_kv_heads": 2, "head_dim": 32, "ffn_dim": 256, "vocab": 320}
TINY: dict[str, dict[str, Any]] = {
    "llama": {"types": {"default": "Q4_K", "attn_v": "Q6_K", "ffn_down": "Q6_K", "token_embd": "Q8_0"}, **SIZES},
    "qwen2": {
        "types": {"default": "Q8_0", "ffn_gate": "Q4_K", "output": "Q6_K"},
        "tied": False,
        **SIZES,
        "num_heads": 7,
        "num_kv_heads": 1,
    },
}
# One block and less, several, and a few prompts of two and three key ranges.
LENGTHS = [1 + (13 * i) % 61 if i % 16 else (17, 270, 400, 600)[i // 16] for i in range(64)]
NEW = [3 + (7 * i) % 30 + (40 if i % 4 == 1 else 0) for i in range(64)]
KINDS = (
    Sampling(num_logprobs=2),
    Sampling(num_logprobs=0, temperature=0.9, seed=11),
    Sampling(num_logprobs=1, temperature=1.1, top_p=0.9, repetition_penalty=1.1, frequency_penalty=0.2, seed=12),
)

Answer = list[tuple[int, float | None, tuple[tuple[int, float], ...]]]


@dataclass(frozen=True)
class Case:
    """A model and what is asked of it."""

    model: Model
    prompts: list[list[int]]
    new_tokens: list[int]

    def requests(self, kinds: tuple[Sampling, ...] = KINDS) -> list[Request]:
        return [
            Request(str(i), prompt, GenerationParams(count, sampling=replace(kinds[i % len(kinds)], choice=i)))
            for i, (prompt, count) in enumerate(zip(self.prompts, self.new_tokens, strict=True))
        ]

    def executor(self, threads: int = 1, blocks: int = PLENTY, **settings: Any) -> NativeExecutor:
        groups = len(self.model.program.cache_groups)
        config = ExecutorConfig(threads, (blocks,) * groups, CONTEXT, **settings)
        return NativeExecutor(self.model.program, self.model.source, config)

    def answers(
        self, executor: NativeExecutor, requests: list[Request], *, runs_on: bool = True, **settings: Any
    ) -> list[Answer]:
        """What an engine of its own gives, steps laid out ahead where they can be; memory is filled with NaN before."""
        executor.poison()
        engine = Engine(executor, EngineConfig(self.model.config.vocab_size, CONTEXT, **settings))
        answers: dict[Request, Answer] = {request: [] for request in requests}
        for request in requests:
            engine.submit(request)
        while engine.has_work:
            engine.begin()
            engine.finish(lambda: runs_on)
            for event in engine.take_events():
                if isinstance(event, NewToken):
                    answers[event.request].append((event.token_id, event.logprob, event.alternatives))
                elif isinstance(event, Finished):
                    assert event.request.error is None
        return list(answers.values())

    def alone(self, kinds: tuple[Sampling, ...] = KINDS, **settings: Any) -> list[Answer]:
        """Each request with the engine to itself, its prompt in as few chunks as can be, on one thread."""
        executor = self.executor(**settings)
        return [self.answers(executor, [request], runs_on=False)[0] for request in self.requests(kinds)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Case, list[Answer]]]:
    """A tiny model's case, and its answers alone."""

    @cache
    def make(arch: str) -> tuple[Case, list[Answer]]:
        path = write_tiny_gguf(tmp_path_factory.mktemp(arch) / "tiny.gguf", arch, **TINY[arch])
        rng = np.random.default_rng(0)
        prompts = [rng.integers(0, SIZES["vocab"], length).tolist() for length in LENGTHS]
        case = Case(load_model(path), prompts, NEW)
        return case, case.alone()

    return make


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> tuple[Case, list[Answer]]:
    """16 prompts, the longest of two key ranges, and the first with a long answer."""
    model = load_model(smollm2_path)
    rng = np.random.default_rng(1)
    lengths = [14, 262, 90, 21, *range(1, 13)]
    prompts = [rng.integers(1000, 20000, length).tolist() for length in lengths]
    case = Case(model, prompts, [50, 24, 8, 6, *[2] * 12])
    return case, case.alone(blocks=ENOUGH)


def test_the_cases_are_worth_asking(tiny: Callable[[str], tuple[Case, list[Answer]]]) -> None:
    """Answers have as many tokens as asked for, finite log-probabilities, and differ from each other."""
    for arch in TINY:
        case, alone = tiny(arch)
        assert [len(answer) for answer in alone] == case.new_tokens
        assert all(logprob is not None and np.isfinite(logprob) for answer in alone for _, logprob, _ in answer)
        assert len({tuple(token for token, _, _ in answer) for answer in alone}) > 60
        assert np.mean([len({token for token, _, _ in answer}) / len(answer) for answer in alone]) > 0.5


def grid(*batches: int) -> list[tuple[str, int, int, int]]:
    """(arch, threads, batch, chunk): all of it for one model, its corners for the other."""
    whole = [("llama", threads, batch, chunk) for threads in (1, 2) for batch in batches for chunk in (16, 100, 512)]
    return [*whole, ("qwen2", 1, batches[0], 16), ("qwen2", 1, 16, 512), ("qwen2", 2, 8, 100), ("qwen2", 2, 16, 16)]


@pytest.mark.parametrize(("arch", "threads", "batch", "chunk"), grid(1, 3, 8, 16))
def test_tiny_models(
    tiny: Callable[[str], tuple[Case, list[Answer]]], arch: str, threads: int, batch: int, chunk: int
) -> None:
    """Case BAT-03."""
    case, alone = tiny(arch)
    executor = case.executor(threads)
    assert case.answers(executor, case.requests(), max_running=batch, max_chunk_tokens=chunk) == alone


@pytest.mark.parametrize(("arch", "threads", "batch", "chunk"), grid(3, 8, 16))
def test_tiny_models_preempted(
    tiny: Callable[[str], tuple[Case, list[Answer]]], arch: str, threads: int, batch: int, chunk: int
) -> None:
    """A pool that the longest of these requests nearly fills: many give way, some of them several times."""
    case, alone = tiny(arch)
    blocks = 10
    fit = [i for i, (length, new) in enumerate(zip(LENGTHS, NEW, strict=True)) if length + new <= 16 * blocks]
    few = [request for i, request in enumerate(case.requests()) if i in fit]
    settings = {"max_running": batch, "max_chunk_tokens": chunk, "max_step_tokens": 150}
    assert case.answers(case.executor(threads, blocks), few, **settings) == [alone[i] for i in fit]
    assert len(few) > 50 and sum(request.num_preemptions for request in few) > 5


@pytest.fixture(scope="module")
def long(tiny: Callable[[str], tuple[Case, list[Answer]]]) -> list[tuple[Case, list[Answer]]]:
    """Each prompt of more than a key range between two short ones, and their answers alone."""
    whole, _ = tiny("llama")
    prompts = [prompt for prompt in whole.prompts if len(prompt) > 200]
    cases = [Case(whole.model, [whole.prompts[1], prompt, whole.prompts[2]], [110, 40, 9]) for prompt in prompts]
    return [(case, case.alone()) for case in cases]


@pytest.mark.parametrize("chunk", [16, 100, 512])
@pytest.mark.parametrize("threads", [1, 2])
def test_long_prompts_preempted(long: list[tuple[Case, list[Answer]]], threads: int, chunk: int) -> None:
    """The prompts that the pool above cannot hold: each gives way to an older one, over two and three key ranges."""
    for case, alone in long:
        requests = case.requests()
        blocks = len(case.prompts[1]) // 16 + 5
        assert case.answers(case.executor(threads, blocks), requests, max_chunk_tokens=chunk) == alone
        assert requests[1].num_preemptions > 0


@pytest.mark.parametrize(
    ("threads", "blocks"),
    [
        (2, 20),
        pytest.param(1, 20, marks=pytest.mark.large),
        pytest.param(1, ENOUGH, marks=pytest.mark.large),
        pytest.param(2, ENOUGH, marks=pytest.mark.large),
    ],
)
def test_smollm2_on_the_corners(smollm2: tuple[Case, list[Answer]], threads: int, blocks: int) -> None:
    """All of them; 20 blocks are hardly more than the longest request takes, so that it is preempted."""
    case, alone = smollm2
    executor = case.executor(threads, blocks)
    for batch, chunk in product((1, 16) if blocks == ENOUGH else (16,), (16, 512)):
        requests = case.requests()
        answers = case.answers(executor, requests, max_running=batch, max_chunk_tokens=chunk)
        assert answers == alone, f"{batch} at a time, chunks of {chunk}"
        assert any(request.num_preemptions for request in requests) == (blocks < ENOUGH)


@pytest.mark.parametrize("change", ["seed", "kv type", "prompt"])
def test_what_must_change_bits_does(tiny: Callable[[str], tuple[Case, list[Answer]]], change: str) -> None:
    """Controls, so that equality above means something."""
    case, alone = tiny("llama")
    few = Case(case.model, case.prompts[:9], case.new_tokens[:9])
    assert few.alone() == alone[:9]
    if change == "seed":
        other = few.alone(tuple(replace(kind, seed=kind.seed + 1) for kind in KINDS))
        assert [a == b for a, b in zip(other, alone, strict=False)] == [True, False, False] * 3  # greedy has no seed
    elif change == "kv type":
        other = few.alone(kv_type="f32")
        assert all(a != b for a, b in zip(other, alone, strict=False))
    else:
        prompts = [[prompt[0] ^ 1, *prompt[1:]] for prompt in few.prompts]
        other = Case(case.model, prompts, few.new_tokens).alone()
        assert all(a != b for a, b in zip(other, alone, strict=False))
