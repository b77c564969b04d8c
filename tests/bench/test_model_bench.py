"""`bench MODEL`: timed is what was asked for, figures are the cost model's and the ledger's, f64 is the truth."""

import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command_line import invoke, json_of, output_of
from tests.tiny import write_tiny_gguf

from twostroke.bench import model_bench
from twostroke.bench.cell import Scenario
from twostroke.bench.in_process import passes
from twostroke.errors import ConfigError, ContextLengthError
from twostroke.llm.llm import LLM
from twostroke.models.load import dequantized, load_model
from twostroke.program.cost import ChunkShape
from twostroke.program.reference import ReferenceExecutor

QUICK = ("--repeat", "2")
KEYS = [
    *("prompt_tokens", "gen_tokens", "batch", "depth", "weights", "kv", "weight_bytes", "prefill_tok_s"),
    *("decode_tok_s", "decode_bytes_per_token", "flops_per_token", "roof_flop_s", "roof_byte_s"),
    *("prefill_roof_fraction", "decode_roof_fraction", "ttft_s", "python_fraction", "perplexity", "threads", "isa"),
    *("repeat", "spread"),
]


@pytest.fixture(autouse=True)
def quick_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The roof of each cell is measured as always, for less long."""
    monkeypatch.setattr(model_bench, "_PROBE_S", 0.02)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf", types="Q8_0", context=512))


@pytest.fixture(scope="module")
def llm(tiny: str) -> Any:
    with LLM(tiny, context=256, max_batch=3, speculation=False) as loaded:
        yield loaded


@pytest.mark.parametrize("depth", [0, 37, 64])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_pass_times_what_was_asked_for(llm: LLM, batch: int, depth: int) -> None:
    scenario = Scenario(prompt_tokens=40, gen_tokens=9, batch=batch, depth=depth)
    cost = llm.running.loaded.executor.cost
    for one in passes(llm, scenario, 2):
        assert one.prefill is not None
        assert one.decode is not None
        cached = depth // 16 * 16  # whole blocks are known, the rest of the depth belongs to the prompt
        assert one.prefill.tokens == batch * (40 + depth - cached)
        assert one.decode.tokens == batch * 9
        assert one.decode.steps == 9  # all of the batch together, from the first step
        steps = [cost.step([ChunkShape(depth + 40 + i, 1, 1)] * batch) for i in range(9)]
        assert one.decode.kv_bytes == pytest.approx(sum(step.kv_bytes for step in steps))
        assert one.decode.weight_bytes == pytest.approx(sum(step.weight_bytes for step in steps))
        assert one.decode.flops == pytest.approx(sum(step.flops for step in steps))
        assert 0 < one.decode.native_seconds < one.decode.seconds


def test_the_object_has_a_cell_for_each_combination(tiny: str) -> None:
    found = json_of(
        *("bench", tiny, *QUICK, "--prompt-tokens", "8,20", "--gen-tokens", "4", "--batch", "1,2", "--kv", "f32,f16")
    )
    assert list(found) == ["model", "cells"]
    cells = found["cells"]
    asked = [(cell["kv"], cell["batch"], cell["prompt_tokens"]) for cell in cells]
    assert asked == [(kv, batch, prompt) for kv in ("f32", "f16") for batch in (1, 2) for prompt in (8, 20)]
    for cell in cells:
        assert list(cell) == KEYS
        low, high = cell["spread"]["decode_tok_s"]
        assert low <= cell["decode_tok_s"] <= high
        assert cell["perplexity"] is None
        assert 0 < cell["python_fraction"] < 1
        assert cell["weights"] == "own"
    wide, narrow = cells[0]["decode_bytes_per_token"], cells[4]["decode_bytes_per_token"]
    assert wide > narrow  # keys and values of 32 bits move twice the bytes of 16


def test_only_one_phase(tiny: str) -> None:
    (prefill,) = json_of("bench", tiny, *QUICK, "--prompt-tokens", "30", "--gen-tokens", "0")["cells"]
    assert prefill["decode_tok_s"] is None
    assert prefill["decode_bytes_per_token"] is None
    assert prefill["prefill_tok_s"] > 0
    (decode,) = json_of("bench", tiny, *QUICK, "--prompt-tokens", "0", "--gen-tokens", "5", "--depth", "32")["cells"]
    assert decode["prefill_tok_s"] is None
    assert decode["ttft_s"] is None
    assert decode["decode_tok_s"] > 0


def test_widths_end_in_the_reference(tiny: str) -> None:
    cells = json_of("bench", tiny, *QUICK, "--prompt-tokens", "8", "--gen-tokens", "2", "--weights", "q4_0,f32,f64")[
        "cells"
    ]
    narrow, wide, exact = cells
    assert [cell["weights"] for cell in cells] == ["q4_0", "f32", "f64"]
    assert narrow["weight_bytes"] < wide["weight_bytes"] < exact["weight_bytes"]
    assert exact["isa"] == "numpy"
    model = load_model(tiny)
    with LLM(tiny) as llm:
        text = files("twostroke.bench").joinpath("passage.txt").read_text("utf-8")
        ids = list(llm.tokenizer.encode(text))[:400]
    reference = ReferenceExecutor(model.program, dequantized(model.source), np.float64)
    logits = reference.forward(reference.new_state(), ids)["logits"][:-1]
    nll = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(399), ids[1:]]
    assert exact["perplexity"] == pytest.approx(math.exp(nll.mean()), rel=1e-9)
    assert wide["perplexity"] == pytest.approx(exact["perplexity"], rel=1e-3)
    model.source.close()


def test_the_table_says_what_it_shows(tiny: str) -> None:
    lines = output_of("bench", tiny, *QUICK, "--prompt-tokens", "8", "--gen-tokens", "4", "--batch", "1,2").splitlines()
    assert lines[0].split()[:3] == ["batch", "prefill", "tok/s"]
    assert [line.split()[0] for line in lines[1:3]] == ["1", "2"]
    assert "prompt 8, answer 4" in lines[4]
    assert "Medians of 2 passes" in lines[4]
    assert lines[5].startswith("roof: reading own weights")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--batch", "0"), "batch must be from 1"),
        (("--batch", "1;2"), "batch must be whole numbers"),
        (("--weights", "q3_9"), "weights must be among"),
        (("--kv", "f8"), "kv must be among"),
        (("--repeat", "0"), "repeat must be from 1"),
        (("--prompt-tokens", "0", "--gen-tokens", "0"), "nothing to time"),
        (("--weights", "f64", "--batch", "2"), "the reference runs one request"),
    ],
)
def test_what_cannot_be_is_refused(tiny: str, arguments: tuple[str, ...], message: str) -> None:
    result = invoke("bench", tiny, *arguments)
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


def test_beyond_the_models_context(tiny: str) -> None:
    assert isinstance(invoke("bench", tiny, "--depth", "5000").exception, ContextLengthError)


def test_a_model_or_a_server(tiny: str, tmp_path: Path) -> None:
    for arguments in ((), (tiny, "--url", "http://127.0.0.1:9")):
        assert "--url of a server" in invoke("bench", *arguments).output
    assert "--rate is for --url" in invoke("bench", tiny, "--rate", "1").output
    assert "--depth is for a MODEL" in invoke("bench", "--url", "http://127.0.0.1:9", "--depth", "1").output
