"""Invariant 1 for every family: windows, caps, sinks and experts depend on neighbours no more than Llama does.

Sixteen prompts, most of them longer than the windows, on tiny models in K-quants, through the real engine.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tests.test_invariants import Answer, Case
from tests.tiny_families import KEYS, write_tiny_family

from twostroke.models.load import load_model

FAMILIES = [family for family in KEYS if family not in ("llama", "qwen2")]  # these are in test_invariants
TYPES = {"default": "Q4_K", "attn_v": "Q6_K", "ffn_down": "Q6_K", "ffn_down_exps": "Q6_K", "token_embd": "Q8_0"}
LENGTHS = [1, 5, 16, 17, 18, 24, 25, 31, 40, 47, 60, 77, 90, 130, 270, 300]
NEW = [3 + 5 * i % 19 for i in range(16)]

Made = tuple[Case, list[Answer]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """A family's case, and its answers alone."""

    @cache
    def make(family: str) -> Made:
        path = tmp_path_factory.mktemp("family") / "tiny.gguf"
        model = load_model(write_tiny_family(path, family, types=TYPES, dim=256, ffn_dim=256))
        rng = np.random.default_rng(0)
        case = Case(model, [rng.integers(0, 320, length).tolist() for length in LENGTHS], NEW)
        return case, case.alone()

    return make


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cases_are_worth_asking(made: Callable[[str], Made], family: str) -> None:
    case, alone = made(family)
    assert [len(answer) for answer in alone] == case.new_tokens
    assert all(logprob is not None and np.isfinite(logprob) for answer in alone for _, logprob, _ in answer)
    assert len({tuple(token for token, _, _ in answer) for answer in alone}) > 12


@pytest.mark.parametrize(("threads", "batch", "chunk"), [(1, 1, 16), (1, 16, 512), (2, 5, 23), (2, 16, 100)])
@pytest.mark.parametrize("family", FAMILIES)
def test_neighbours_chunks_and_threads(
    made: Callable[[str], Made], family: str, threads: int, batch: int, chunk: int
) -> None:
    case, alone = made(family)
    executor = case.executor(threads)
    assert case.answers(executor, case.requests(), max_running=batch, max_chunk_tokens=chunk) == alone


@pytest.mark.parametrize("family", FAMILIES)
def test_preemption(made: Callable[[str], Made], family: str) -> None:
    """A pool that holds two of four growing requests: others give way and are computed again."""
    case = Case(made(family)[0].model, [prompt[:20] for prompt in made(family)[0].prompts[-4:]], [60] * 4)
    requests = case.requests()
    assert case.answers(case.executor(2, 11), requests, max_running=4, max_chunk_tokens=16) == case.alone()
    assert sum(request.num_preemptions for request in requests) > 0
