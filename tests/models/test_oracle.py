"""The reference executor against an independent float32 forward pass over the same dequantised weights."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twostroke.models.load import dequantized, load_model
from twostroke.program.passes import fuse
from twostroke.program.reference import ReferenceExecutor

GOLDEN = Path(__file__).parents[1] / "golden"
NUM_PROMPTS, NUM_CHATS = 12, 4
QUICK = [0, 4, 9, NUM_PROMPTS]  # short, the smallest margins, a chat
MIN_MARGIN = 0.01
LOG_PROBABILITY_TOLERANCE = 1e-3


def golden(name: str) -> dict[str, Any]:
    oracle: dict[str, Any] = json.loads((GOLDEN / name).read_text(encoding="utf-8"))
    assert (len(oracle["prompts"]), len(oracle["chats"])) == (NUM_PROMPTS, NUM_CHATS)
    return oracle


def executor_of(path: Path) -> ReferenceExecutor:
    model = load_model(path)
    return ReferenceExecutor(fuse(model.program), dequantized(model.source))


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> ReferenceExecutor:
    return executor_of(smollm2_path)


@pytest.fixture(scope="module")
def qwen(qwen_path: Path) -> ReferenceExecutor:
    return executor_of(qwen_path)


smollm2_golden = partial(golden, "smollm2-135m-instruct-q4_1.json")
qwen_golden = partial(golden, "qwen2.5-coder-1.5b-instruct-q4_k_m.json")


def log_probabilities(executor: ReferenceExecutor, ids: list[int], num_outputs: int) -> np.ndarray:
    """(num_outputs, vocab_size), natural logarithms in float64."""
    logits = executor.forward(executor.new_state(), ids, num_outputs)["logits"].astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def check_case(executor: ReferenceExecutor, oracle: dict[str, Any], index: int) -> None:
    """Top-5 log-probabilities after the prompt, and each greedy token given those before it."""
    case = (oracle["prompts"] + oracle["chats"])[index]
    greedy, margins = np.array(case["greedy"]), np.array(case["margins"])
    rows = log_probabilities(executor, case["ids"] + case["greedy"][:-1], len(greedy))
    top_ids, expected = zip(*case["top5"], strict=True)
    np.testing.assert_allclose(rows[0, list(top_ids)], expected, rtol=0, atol=LOG_PROBABILITY_TOLERANCE)
    wide = margins >= MIN_MARGIN
    assert wide.sum() > len(greedy) // 2
    np.testing.assert_array_equal(rows.argmax(axis=1)[wide], greedy[wide])
    ordered = np.sort(rows, axis=1)
    np.testing.assert_allclose(ordered[:, -1] - ordered[:, -2], margins, rtol=0, atol=2 * LOG_PROBABILITY_TOLERANCE)


def check_passage(executor: ReferenceExecutor, oracle: dict[str, Any]) -> None:
    """Negative log-likelihood of each token of the passage but the first."""
    passage = oracle["passage"]
    ids = passage["ids"]
    rows = log_probabilities(executor, ids[:-1], len(ids) - 1)
    nll = -rows[np.arange(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(nll, passage["nll"], rtol=0, atol=LOG_PROBABILITY_TOLERANCE)
    assert np.exp(nll.mean()) == pytest.approx(passage["perplexity"], rel=1e-5)


@pytest.mark.parametrize("index", QUICK)
def test_smollm2(smollm2: ReferenceExecutor, index: int) -> None:
    check_case(smollm2, smollm2_golden(), index)


def test_smollm2_passage(smollm2: ReferenceExecutor) -> None:
    check_passage(smollm2, smollm2_golden())


@pytest.mark.large
@pytest.mark.parametrize("index", sorted(set(range(NUM_PROMPTS + NUM_CHATS)) - set(QUICK)))
def test_smollm2_all(smollm2: ReferenceExecutor, index: int) -> None:
    check_case(smollm2, smollm2_golden(), index)


@pytest.mark.large
@pytest.mark.parametrize("index", range(NUM_PROMPTS + NUM_CHATS))
def test_qwen(qwen: ReferenceExecutor, index: int) -> None:
    check_case(qwen, qwen_golden(), index)


@pytest.mark.large
def test_qwen_passage(qwen: ReferenceExecutor) -> None:
    check_passage(qwen, qwen_golden())
