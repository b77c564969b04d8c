"""Invariant 1 where rows are not computed anew: prompts that begin alike, on every family, and a pool far too small.

Compared exactly (ids, log-probabilities, alternatives) with each request alone in an engine without a prefix cache.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tests.test_invariants import SIZES, TINY, Answer, Case
from tests.test_invariants_families import PLENTY, TYPES, VOCAB, FamilyCase
from tests.tiny import write_tiny_gguf
from tests.tiny_families import KEYS, write_tiny_family

from twostroke.engine.config import EngineConfig
from twostroke.engine.engine import Engine
from twostroke.engine.request import FinishReason, Request
from twostroke.engine.speculation import Speculation
from twostroke.models.load import load_model

STEM = 75  # 4 blocks and a bit; windows are 16 and 24 tokens
LENGTHS = (75, 80, 81, 90, 64, 65, 100, 270)
NEW = (12, 30, 3, 20, 9, 5, 17, 4)

Made = Callable[[str], tuple[FamilyCase, list[Answer]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A family's case of prompts that begin alike, and its answers alone and without a prefix cache."""

    @cache
    def make(family: str) -> tuple[FamilyCase, list[Answer]]:
        types = TYPES[list(KEYS).index(family) % len(TYPES)]
        path = tmp_path_factory.mktemp(family) / "tiny.gguf"
        model = load_model(write_tiny_family(path, family, types=types, vocab=VOCAB, ffn_dim=96, tied=False))
        rng = np.random.default_rng(4)
        stem = rng.integers(0, VOCAB, STEM).tolist()
        prompts = [[*stem, *rng.integers(0, VOCAB, 200).tolist()][:length] for length in LENGTHS]
        case = FamilyCase(model, prompts, list(NEW))
        executor = case.executor()
        return case, [case.answers(executor, [r], prefix_cache=False)[0] for r in case.requests()]

    return make


@pytest.mark.parametrize("family", KEYS)
def test_what_is_taken_from_the_cache_is_what_would_be_computed(made: Made, family: str) -> None:
    """Case BAT-13."""
    case, alone = made(family)
    for batch, blocks, chunk in ((1, PLENTY, 512), (3, 26, 32)):
        requests = case.requests()
        answers = case.answers(case.executor(2, blocks), requests, max_running=batch, max_chunk_tokens=chunk)
        assert answers == alone
        assert sum(request.num_cached for request in requests) >= 64 * (len(requests) - batch) - 16


@pytest.mark.parametrize("family", ["llama", "gpt-oss"])
def test_a_wrong_block_would_show(made: Made, family: str) -> None:
    """Control: blocks of another prompt under this one's name change the answer."""
    case, alone = made(family)
    executor = case.executor()
    engine = Engine(executor, EngineConfig(VOCAB, 1024))
    engine.prepare(right := case.requests()[3])
    other = [token ^ 1 for token in case.prompts[3]]
    engine.submit(wrong := FamilyCase(case.model, [other], [1]).requests()[0])
    wrong.chain.keys[:] = right.chain.keys
    while engine.has_work:
        engine.step()
    engine.submit(right)
    while engine.has_work:
        engine.step()
    assert right.num_cached == 80 and right.generated_ids != [token for token, _, _ in alone[3]]


@pytest.mark.parametrize("family", KEYS)
def test_drafts_change_nothing(made: Made, monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    """Drafts of what is known to follow, with a mistake at ever another place, whenever one can be made."""
    case, _ = made(family)
    few = FamilyCase(case.model, case.prompts[:6], [40, 35, 31, 28, 30, 26])
    executor = few.executor()
    expected = [few.answers(executor, [r], speculation=False)[0] for r in few.requests()]
    whole = [[*prompt, *(t for t, _, _ in answer)] for prompt, answer in zip(few.prompts, expected, strict=True)]
    drafted = []

    def drafts(_: Speculation, request: Request, num_running: int, most: int) -> list[int]:
        known, tokens = request.num_tokens, request.tokens[: request.num_tokens].tolist()
        most = min(most, 7, request.max_tokens - request.num_generated - 1)
        following = [text[known : known + most] for text in whole if text[:known] == tokens]
        if following and len(following[0]) > known % 6:
            following[0][known % 6] ^= 1
        drafted.append(len(following[0]) if following else 0)
        return following[0] if following else []

    monkeypatch.setattr(Speculation, "drafts", drafts)
    for batch, blocks in ((1, PLENTY), (4, 18)):
        answers = few.answers(few.executor(1, blocks), few.requests(), max_running=batch)
        assert answers == expected
    assert sum(drafted) > 100 and len(drafted) < 0.7 * 2 * sum(few.new_tokens)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, int, list[list[int]]]:
    """300 requests, half of them of common beginnings; the blocks that 64 together demand, and the text with room."""
    path = write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "llama", **TINY["llama"])
    rng = np.random.default_rng(5)
    stems = [rng.integers(0, SIZES["vocab"], 20).tolist() for _ in range(3)]
    prompts = [
        [*(stems[i % 3] if i % 2 else []), *rng.integers(0, SIZES["vocab"], rng.integers(1, 15)).tolist()]
        for i in range(300)
    ]
    new_tokens = [*rng.integers(100, 200, 40).tolist(), *rng.integers(1, 30, 260).tolist()]  # the first grow most
    case = Case(load_model(path), prompts, new_tokens)
    sizes = [len(prompt) + new for prompt, new in zip(prompts, case.new_tokens, strict=True)]
    demand = sum(-(-size // 16) for size in sorted(sizes)[-64:])
    expected = case.answers(case.executor(1, demand), case.requests(), prefix_cache=False)
    return case, demand, [[token for token, _, _ in answer] for answer in expected]


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_a_pool_of_a_quarter_of_the_demand(many: tuple[Case, int, list[list[int]]], prefix_cache: bool) -> None:
    """All finish, the text is that of an engine with room for all, and every block comes back."""
    case, demand, expected = many
    requests = case.requests()
    engine = Engine(case.executor(1, demand // 4), EngineConfig(SIZES["vocab"], 1024, prefix_cache=prefix_cache))
    for request in requests:
        engine.submit(request)
    while engine.has_work:
        engine.step()
    assert [request.generated_ids for request in requests] == expected
    assert {request.finish_reason for request in requests} == {FinishReason.LENGTH}
    assert sum(request.num_preemptions for request in requests) > 20
    assert engine.cache.num_free == demand // 4
    if not prefix_cache:
        assert all(pool.num_free == pool.num_blocks for pool in engine.cache.pools)
