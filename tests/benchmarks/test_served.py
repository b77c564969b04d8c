"""The comparison of servers: what is read of a load test, what a ratio is, and that a failure is no figure."""

import json
from typing import Any

import click
import pytest
from benchmarks.peers.served import Load, Served, compared

LOAD = Load(clients=16, requests=64, prompt_tokens=120, output_tokens=64)


def report(**changed: Any) -> str:
    stage = {
        "requests": {"measured": 64, "succeeded": 64, "errors": {}},
        "output_tokens": {"a_request": {"mean": 64.0}},
        "output_tokens_per_second": 700.0,
        "ttft_s": {"p50": 0.5, "p99": 0.9},
        "tpot_s": {"p50": 0.02, "p99": 0.03},
        "faults": [],
    }
    return json.dumps({"stages": [{**stage, **changed}]})


def test_a_load_test_is_read() -> None:
    assert Served.read(report(), LOAD) == Served(700.0, 0.5, 0.02)


@pytest.mark.parametrize(
    "changed",
    [
        {"requests": {"measured": 64, "succeeded": 63, "errors": {"timeout": 1}}},
        {"requests": {"measured": 64, "succeeded": 0, "errors": {"status": 64}}, "output_tokens": {"a_request": None}},
        {"output_tokens": {"a_request": {"mean": 40.0}}},
    ],
)
def test_failed_and_short_answers_are_no_figure(changed: dict[str, Any]) -> None:
    with pytest.raises(click.ClickException, match="failed or were answered short"):
        Served.read(report(**changed), LOAD)


def test_ratios_are_of_one_round() -> None:
    ours = [Served(600.0, 0.4, 0.02), Served(300.0, 0.9, 0.04), Served(800.0, 0.3, 0.02)]
    theirs = [Served(200.0, 1.6, 0.07), Served(150.0, 1.8, 0.09), Served(200.0, 1.5, 0.07)]
    ratios = compared({"twostroke": ours, "llama.cpp": theirs})["llama.cpp"]
    assert (ratios["output_tok_s"].median, ratios["output_tok_s"].least, ratios["output_tok_s"].most) == (3.0, 2.0, 4.0)
    assert ratios["ttft_p50"].median == pytest.approx(0.25)
    assert ratios["ttft_p50"].most == pytest.approx(0.5)
