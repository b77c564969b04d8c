"""`twostroke eval`: perplexity against the oracle in both phases, windows, and where the text comes from."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command_line import invoke, json_of, output_of
from tests.tiny import write_tiny_gguf

from twostroke.cli.eval import windows
from twostroke.errors import ContextLengthError, InvalidRequestError, ModelOutputError
from twostroke.llm.llm import LLM
from twostroke.llm.results import Score
from twostroke.program.phase import Phase
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.gguf import GGUFFile

GOLDEN = Path(__file__).parents[1] / "golden"
TEXT = "the rain on the tin roof, the hound in the lane: all of it, and then no more of it. " * 3
PHASES = ("prefill", "decode")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf", types="Q8_0"))


def tokenizer_of(path: str, add_bos: bool = False) -> Tokenizer:
    with GGUFFile.open(path) as source:
        return Tokenizer.from_gguf({**source.metadata, "tokenizer.ggml.add_bos_token": add_bos})


def check_passage(path: Path, golden: str, phase: str) -> None:
    passage: dict[str, Any] = json.loads((GOLDEN / golden).read_text("utf-8"))["passage"]
    found = json_of("eval", str(path), "--phase", phase, text=passage["text"])
    assert list(found) == ["model", "phase", "num_tokens", "mean_nll", "perplexity"]
    assert (found["model"], found["phase"], found["num_tokens"]) == (str(path), phase, len(passage["nll"]))
    assert found["perplexity"] == math.exp(found["mean_nll"])
    assert abs(found["perplexity"] / passage["perplexity"] - 1) < 0.003


@pytest.mark.parametrize("phase", PHASES)
def test_the_oracles_passage(smollm2_path: Path, phase: str) -> None:
    check_passage(smollm2_path, "smollm2-135m-instruct-q4_1.json", phase)


@pytest.mark.large
@pytest.mark.parametrize("phase", PHASES)
def test_the_oracles_passage_with_the_large_model(qwen_path: Path, phase: str) -> None:
    check_passage(qwen_path, "qwen2.5-coder-1.5b-instruct-q4_k_m.json", phase)


@pytest.mark.parametrize("phase", PHASES)
def test_a_text_longer_than_the_window_is_scored_window_by_window(tiny: str, phase: str) -> None:
    ids = tokenizer_of(tiny).encode(TEXT)
    assert len(ids) % 20 > 1
    found = json_of("eval", tiny, "--phase", phase, "--context", "20", "--text", TEXT)
    with LLM(tiny, context=20) as llm:
        alone = [llm.score(ids[start : start + 20], Phase(phase)).logprobs for start in range(0, len(ids), 20)]
    logprobs = [logprob for window in alone for logprob in window]
    assert found["num_tokens"] == len(logprobs) == len(ids) - len(alone)
    assert found["mean_nll"] == -math.fsum(logprobs) / len(logprobs)
    assert json_of("eval", tiny, "--text", TEXT)["num_tokens"] == len(ids) - 1


def test_the_phase_is_that_of_the_rows(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[tuple[int, int]] = []
    close = LLM.close

    def note_and_close(llm: LLM) -> None:
        rows.append((llm.totals(Phase.PREFILL).rows, llm.totals(Phase.DECODE).rows))
        close(llm)

    monkeypatch.setattr(LLM, "close", note_and_close)
    num_tokens = [json_of("eval", tiny, "--phase", phase, "--text", TEXT)["num_tokens"] for phase in PHASES]
    assert num_tokens[0] == num_tokens[1]
    assert rows[0][1] == 0 and rows[0][0] >= num_tokens[0]
    assert rows[1][0] == 1 and rows[1][1] >= num_tokens[1] - 1


@pytest.mark.parametrize("size", [2, 3, 16, 1000])
def test_windows(tiny: str, size: int) -> None:
    plain, with_bos = tokenizer_of(tiny), tokenizer_of(tiny, add_bos=True)
    ids = plain.encode(TEXT)
    cut = windows(plain, TEXT, size)
    assert [token for window in cut for token in window] == ids[: len(ids) - (len(ids) % size == 1)]
    assert {len(window) for window in cut[:-1]} <= {size} and 2 <= len(cut[-1]) <= size
    cut = windows(with_bos, TEXT, size)
    assert [token for window in cut for token in window[1:]] == ids
    assert {window[0] for window in cut} == {with_bos.bos_id}
    assert {len(window) for window in cut[:-1]} <= {size} and 2 <= len(cut[-1]) <= size


def test_text_file_and_stdin_are_one(tiny: str, tmp_path: Path) -> None:
    text = "naïve\r\ntext\n"
    (tmp_path / "text.txt").write_bytes(text.encode())
    expected = json_of("eval", tiny, "--text", text)
    assert json_of("eval", tiny, "--file", str(tmp_path / "text.txt")) == expected
    assert json_of("eval", tiny, text=text.encode()) == expected
    line = output_of("eval", tiny, "--text", text)
    assert f"perplexity {expected['perplexity']:.4f}, " in line
    assert f"{expected['num_tokens']} tokens scored as prefill rows" in line


def test_a_perplexity_beyond_any_number_is_an_error(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LLM, "score", lambda _, ids, phase: Score(tuple(ids), (-800.0,) * (len(ids) - 1), Phase(phase)))
    error = invoke("eval", tiny, "--text", TEXT).exception
    assert isinstance(error, ModelOutputError)
    assert str(error).startswith("800.0 nats a token")


def test_errors_and_bad_usage(tiny: str, tmp_path: Path) -> None:
    for text in ("", "e"):
        error = invoke("eval", tiny, "--text", text).exception
        assert isinstance(error, InvalidRequestError) and f"a text of {len(text)} tokens" in str(error)
    error = invoke("eval", tiny, text=b"abc\xff").exception
    assert isinstance(error, InvalidRequestError) and str(error) == "standard input is not UTF-8: byte 3 is 0xff"
    error = invoke("eval", tiny, "--file", str(tmp_path / "none")).exception
    assert isinstance(error, InvalidRequestError) and str(tmp_path / "none") in str(error)
    error = invoke("eval", tiny, "--text", TEXT, "--context", "4096").exception
    assert isinstance(error, ContextLengthError) and "4096" in str(error) and "2048" in str(error)
    assert invoke("eval", tiny, "--text", "a", "--file", "b").exit_code == 2
    assert invoke("eval", tiny, "--text", TEXT, "--context", "1").exit_code == 2
