"""The comparison with other engines: what is read of their answers, what a ratio is, which flags a level has."""

import json
from pathlib import Path

import pytest
from benchmarks.peers import llama_cpp, llama_cpp_build, own
from benchmarks.peers.question import Question, questions
from benchmarks.peers.table import lines
from benchmarks.peers.turns import Answer, ask

PREFILL, DECODE, BATCH = Question(512, 0), Question(0, 128), Question(64, 64, 16)


class Told:
    """An engine that answers with the next of its rates and writes down that it was asked."""

    def __init__(self, name: str, rates: list[float | None], turns: list[str]) -> None:
        self.name, self._rates, self._turns = name, iter(rates), turns

    def rate(self, model: Path, question: Question) -> float | None:
        self._turns.append(self.name)
        return next(self._rates)


def asked(**rates: list[float | None]) -> tuple[Answer, list[str]]:
    turns: list[str] = []
    engines = [Told(name, values, turns) for name, values in rates.items()]
    return ask(engines, Path("m.gguf"), PREFILL, 3, lambda name, rate: None), turns


def test_engines_take_turns_and_ratios_are_of_one_round() -> None:
    answer, turns = asked(ours=[10.0, 100.0, 30.0], theirs=[5.0, 25.0, 10.0])
    assert turns == ["ours", "theirs"] * 3
    ratio = answer.ratio("ours", "theirs")
    assert (ratio.median, ratio.least, ratio.most) == (3.0, 2.0, 4.0)
    assert answer.fields()["ratios"] == {"theirs": {"median": 3.0, "min": 2.0, "max": 4.0}}


def test_an_engine_that_is_not_asked_something_has_no_row() -> None:
    answer, _ = asked(ours=[1.0, 1.0, 1.0], theirs=[None, None, None])
    assert list(answer.rates) == ["ours"]
    assert len(list(lines([answer], "ours"))) == 2


def test_a_slower_engine_is_said_to_be() -> None:
    answer, _ = asked(ours=[50.0, 50.0, 50.0], theirs=[1000.0, 1250.0, 1000.0])
    _, first, second = lines([answer], "ours")
    assert first.split() == ["prefill", "512", "ours", "50.0", "50.0-50.0"]
    assert second.split() == ["theirs", "1,000", "1,000-1,250", "0.05x", "0.04-0.05"]


def test_questions() -> None:
    assert [one.name for one in questions(512, 128, 16)] == ["prefill 512", "decode 128", "decode 64 x 16"]
    assert [one.name for one in questions(0, 128, 0)] == ["decode 128"]


def test_own_rate_is_of_the_stroke_asked_for() -> None:
    said = json.dumps({"cells": [{"prefill_tok_s": 7.5, "decode_tok_s": 2.5}]})
    assert (own.rate_of(said, PREFILL), own.rate_of(said, DECODE), own.rate_of(said, BATCH)) == (7.5, 2.5, 2.5)


def test_llama_bench() -> None:
    assert llama_cpp.rate_of('[{"n_prompt": 512, "avg_ts": 283.519, "stddev_ts": 0.0}]') == 283.519


def test_llama_batched_bench_logs_beside_its_answer() -> None:
    said = 'loading\n\n{"pp": 64, "tg": 32, "pl": 16, "speed_pp": 240.9, "speed_tg": 161.3, "speed": 206.9}\n\nbye\n'
    assert llama_cpp.rate_of_batch(said) == 161.3


@pytest.mark.parametrize(("isa", "has", "lacks"), [("avx2", "AVX2", "AVX512"), ("avx512", "AVX512_VNNI", "AMX_INT8")])
def test_levels_of_llama_cpp(isa: str, has: str, lacks: str) -> None:
    cpu = {"avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "amx_int8"}
    flags = llama_cpp_build.flags(isa, cpu)
    assert "-DGGML_NATIVE=OFF" in flags
    assert f"-DGGML_{has}=ON" in flags
    assert f"-DGGML_{lacks}=ON" not in flags
    assert "-DGGML_AVX512_BF16=ON" not in flags  # this CPU has none
    assert "-DGGML_NATIVE=ON" in llama_cpp_build.flags(None, cpu)
