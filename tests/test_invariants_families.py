"""Invariant 1 for every family: mixtures of experts, windows and several cache groups, through the real engine.

As `test_invariants`, smaller: a few requests whose prompts and answers cross windows and one range of keys. Pools of
several groups differ in size. What no GGUF file is read of runs from its golden checkpoint.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden_families import FOLDER, HF_ONLY, NATIVE
from tests.test_invariants import KINDS, Answer, Case
from tests.tiny_families import KEYS, write_tiny_family

from twostroke.models.load import load_model
from twostroke.native.executor import ExecutorConfig, NativeExecutor

CONTEXT, PLENTY = 1024, 120
VOCAB = 320
DIRECTORY_VOCAB = 96
DIRECTORIES = [*sorted(HF_ONLY.intersection(NATIVE)), "gptneox-sequential", "olmo3", "stablelm-parallel"]
FAMILIES = [*KEYS, *DIRECTORIES]
# Of the families in turn; experts are of the default type.
TYPES = ({"default": "Q8_0", "ffn_down": "Q4_1"}, "F16", {"default": "Q4_0", "token_embd": "Q8_0", "attn_v": "F32"})
LENGTHS = (1, 15, 16, 17, 40, 70, 33, 262, 8, 25)  # windows are 16 and 24 tokens, a range of keys 256
NEW = (60, 50, 45, 35, 54, 9, 47, 6, 40, 3)
LONGEST = 17  # blocks of the longest request
PLACES = ((1, PLENTY, 10, 16), (2, PLENTY, 3, 7), (2, PLENTY, 10, 512), (2, 19, 10, 100))
MORE_PLACES = [
    (t, b, n, c) for t in (1, 2, 3) for b in (PLENTY, LONGEST) for n in (1, 3, 10) for c in (1, 16, 100, 512)
]

Made = Callable[[str], tuple["FamilyCase", list[Answer]]]


@dataclass(frozen=True)
class FamilyCase(Case):
    """A case of a model with any number of cache groups."""

    def executor(self, threads: int = 1, blocks: int = PLENTY, **settings: Any) -> NativeExecutor:
        """Pools of `blocks` blocks and, from group to group, one more."""
        groups = len(self.model.program.cache_groups)
        config = ExecutorConfig(threads, tuple(range(blocks, blocks + groups)), CONTEXT, **settings)
        return NativeExecutor(self.model.program, self.model.source, config)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A family's case, and its answers alone."""

    def path_of(family: str) -> Path:
        if family in DIRECTORIES:
            return FOLDER / family
        types = TYPES[list(KEYS).index(family) % len(TYPES)]
        path = tmp_path_factory.mktemp(family) / "tiny.gguf"
        return write_tiny_family(path, family, types=types, vocab=VOCAB, ffn_dim=96, tied=False)

    @cache
    def make(family: str) -> tuple[FamilyCase, list[Answer]]:
        vocab, rng = DIRECTORY_VOCAB if family in DIRECTORIES else VOCAB, np.random.default_rng(0)
        prompts = [rng.integers(0, vocab, length).tolist() for length in LENGTHS]
        case = FamilyCase(load_model(path_of(family), context=CONTEXT), prompts, list(NEW))
        return case, case.alone()

    return make


def test_the_families_are_worth_asking(made: Made) -> None:
    """Answers are as long as asked for, finite and different; some families have windows, groups and experts."""
    for family in FAMILIES:
        case, alone = made(family)
        assert [len(answer) for answer in alone] == case.new_tokens
        assert all(logprob is not None and np.isfinite(logprob) for answer in alone for _, logprob, _ in answer)
        drawn = [answer for i, answer in enumerate(alone) if i % 3]
        assert np.mean([len({token for token, _, _ in answer}) / len(answer) for answer in drawn]) > 0.5
    groups = {family: made(family)[0].model.program.cache_groups for family in FAMILIES}
    windows = {family: {group.window for group in groups[family]} for family in FAMILIES}
    several = [family for family in FAMILIES if len(windows[family]) > 1]
    assert several == ["gemma2", "gemma3", "gpt-oss", "cohere2", "olmo3"]
    assert [family for family in FAMILIES if windows[family] - {None} and family not in several] == ["mistral", "phi3"]


def check(made: Made, family: str, place: tuple[int, int, int, int]) -> None:
    case, alone = made(family)
    threads, blocks, batch, chunk = place
    requests = case.requests()
    settings = {"max_running": batch, "max_chunk_tokens": chunk, "max_step_tokens": 90}
    assert case.answers(case.executor(threads, blocks), requests, **settings) == alone
    if blocks < PLENTY and batch > 3:
        assert sum(request.num_preemptions for request in requests) >= 1


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_families(made: Made, family: str, place: tuple[int, int, int, int]) -> None:
    """Threads, blocks of the pools, requests at a time and tokens of a chunk; few blocks make requests give way."""
    check(made, family, place)


@pytest.mark.large
@pytest.mark.parametrize("place", MORE_PLACES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_families_on_the_whole_grid(made: Made, family: str, place: tuple[int, int, int, int]) -> None:
    check(made, family, place)


@pytest.mark.parametrize("family", ["mixtral", "gemma2", "gpt-oss"])
@pytest.mark.parametrize("change", ["seed", "kv type", "prompt"])
def test_what_must_change_bits_does(made: Made, family: str, change: str) -> None:
    """Controls, so that equality above means something."""
    case, alone = made(family)
    few = FamilyCase(case.model, case.prompts[:6], case.new_tokens[:6])
    kept = few.alone()
    assert kept == alone[:6]
    if change == "seed":
        other = few.alone(tuple(replace(kind, seed=kind.seed + 1) for kind in KINDS))
        assert [a == b for a, b in zip(other, kept, strict=True)] == [True, False, False] * 2  # greedy has no seed
    elif change == "kv type":
        assert all(a != b for a, b in zip(few.alone(kv_type="f32"), kept, strict=True))
    else:
        prompts = [[*prompt[:-1], prompt[-1] ^ 1] for prompt in few.prompts]
        assert all(a != b for a, b in zip(FamilyCase(case.model, prompts, few.new_tokens).alone(), kept, strict=True))
