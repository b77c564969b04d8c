"""The Python API against the oracle of SmolLM2: greedy texts and their ends, and the passage's perplexity in both
phases.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from twostroke import LLM

GOLDEN = Path(__file__).parents[1] / "golden"
MIN_MARGIN = 0.05
INDEXES = [0, 1, 5, 9, 11, 12, 14]  # prompts, then two chats


def golden() -> dict[str, Any]:
    oracle: dict[str, Any] = json.loads((GOLDEN / "smollm2-135m-instruct-q4_1.json").read_text("utf-8"))
    return oracle


def num_certain(margins: list[float]) -> int:
    """Greedy tokens before the first that a quantised path may choose otherwise."""
    return next((index for index, margin in enumerate(margins) if margin < MIN_MARGIN), len(margins))


def test_greedy_answers_are_the_oracles(smollm2: LLM) -> None:
    cases = [(golden()["prompts"] + golden()["chats"])[index] for index in INDEXES]
    prompts = []
    for case in cases:
        prompts.append(smollm2.render(case["messages"]).ids if "messages" in case else case["text"])
        assert list(smollm2._ids(prompts[-1])) == case["ids"]
    done = smollm2.generate(prompts, temperature=0, max_tokens=32, ignore_eos=True)
    checked = 0
    for case, one in zip(cases, done, strict=True):
        certain = num_certain(case["margins"])
        assert list(one.token_ids[:certain]) == case["greedy"][:certain]
        if certain == len(case["greedy"]):
            assert one.text == smollm2.tokenizer.decode(case["greedy"])
            checked += 1
    assert checked >= 3


@pytest.mark.parametrize("greeting", ["Hello!", "Good morning. Who are you?"])
def test_a_greeting_is_answered_and_ended_by_the_model(smollm2: LLM, greeting: str) -> None:
    """Case LIM-05."""
    done = smollm2.chat([{"role": "user", "content": greeting}], temperature=0, max_tokens=200)
    assert done.text and "<|im_end|>" not in done.text
    assert done.finish_reason == "stop"


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_the_passage_is_as_likely_as_the_oracle_says(smollm2: LLM, phase: Any) -> None:
    passage = golden()["passage"]
    score = smollm2.score(passage["text"], phase)
    assert list(score.token_ids) == passage["ids"]
    assert math.exp(score.mean_nll) == pytest.approx(passage["perplexity"], rel=0.003)
