"""Claims: read as people write them, and judged by what the roofs allow."""

import pytest

from twostroke.errors import ConfigError, HardwareNotFoundError, ModelNotFoundError
from twostroke.roofline.claim import Judgement, judge
from twostroke.roofline.planner import Scenario


def judged(text: str) -> Judgement:
    return judge(text, Scenario())


def test_more_bytes_than_the_memory_can_move_is_impossible() -> None:
    found = judged("llama-2-7b at 45 tok/s on RTX 3060 in fp16")
    assert found.verdict == "impossible"
    assert found.limit_tok_s == pytest.approx(360e9 / found.plan.decode.work.read_bytes)
    assert "610 GB/s" in found.reasons[0] and "360" in found.reasons[0]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Llama-3.1-8B at 130 tok/s on an RTX 4090 in q4_k_m", "plausible"),
        ("llama-3.1-8b does 195 tokens per second on RTX 4090 with Q4_K_M.", "above what is measured"),
        ("llama-3.1-8b at 40 tokens/sec on the RTX 4090 in q4_k_m", "below what is measured"),
        ("llama-3.1-70b at 20 tok/s on rtx 4090 in q8_0", "impossible"),
        ("llama-3.1-70b at 5 tok/s on rtx 4090 in fp16", "impossible"),
    ],
)
def test_verdicts(text: str, verdict: str) -> None:
    assert judged(text).verdict == verdict


def test_a_model_that_does_not_fit_says_so() -> None:
    assert any("does not fit" in reason for reason in judged("llama-3.1-70b at 5 tok/s on rtx 4090 in fp16").reasons)


def test_what_is_no_claim_or_names_nothing_is_refused() -> None:
    for text in ("hello", "llama-3.1-8b on rtx 4090", "llama-3.1-8b at 0 tok/s on rtx 4090"):
        with pytest.raises(ConfigError):
            judged(text)
    with pytest.raises(ModelNotFoundError, match="nearest"):
        judged("lama-3.1-8b at 5 tok/s on rtx 4090")
    with pytest.raises(HardwareNotFoundError, match="nearest"):
        judged("llama-3.1-8b at 5 tok/s on rtx 4099")
