"""`twostroke run` in one shot: what goes to stdout and stderr, the JSON keys, where the prompt comes from, errors."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.tiny import write_tiny_gguf

from twostroke import LLM
from twostroke.cli import roofs
from twostroke.cli.main import main
from twostroke.engine.speculation import Speculation
from twostroke.roofline.hardware import HardwareSpec

KEYS = {
    "model", "text", "prompt_tokens", "completion_tokens", "cached_tokens", "finish_reason", "seed", "ttft_s", "tpot_s",
    "prefill", "decode", "memory",
}  # fmt: skip
PHASE_KEYS = {
    "tokens", "seconds", "tok_s", "flops", "weight_bytes", "kv_bytes", "activation_bytes", "achieved_flop_s",
    "achieved_byte_s", "roof_flop_s", "roof_byte_s", "bound", "roof_fraction",
}  # fmt: skip
MEMORY_KEYS = {"weight_bytes", "kv_bytes_per_token", "kv_pool_bytes", "peak_rss_bytes"}
ROOFS = HardwareSpec("a machine", ((2**20, 4e12), (2**30, 2e12)), {"16bit": 5e15, "f32": 1e15})
QUICK = ("--threads", "1", "--no-probe")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("run") / "tiny.gguf", seed=5))


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("run") / "endless.gguf", context=200_000))


def run(*arguments: str, text: str | bytes = "") -> Result:
    return CliRunner().invoke(main, ["run", *arguments], input=text)


def as_json(*arguments: str, text: str = "") -> dict[str, Any]:
    result = run(*arguments, "--json", text=text)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_answer_is_streamed_and_accounted_for(model: str) -> None:
    result = run(model, "the rain", *QUICK, "--seed", "7", "--max-tokens", "9", "--ignore-eos")
    with LLM(model, threads=1) as llm:
        messages = [{"role": "user", "content": "the rain"}]
        expected = llm.chat(messages, seed=7, max_tokens=9, ignore_eos=True)
    assert result.exit_code == 0
    assert result.stdout.rstrip("\n") == expected.text.rstrip("\n")
    lines = result.stderr.splitlines()
    assert [line.split()[:2] for line in lines if line][:2] == [
        ["prefill", str(expected.prompt_tokens)],
        ["decode", "8"],
    ]
    assert "KV" in lines[-2]
    assert "9 tokens   length   seed 7" in lines[-1]
    assert "\x1b" not in result.output


def test_nothing_but_the_answer_with_no_summary(model: str) -> None:
    assert run(model, "the rain", *QUICK, "--no-summary", "--max-tokens", "3").stderr == ""


def test_verbose_says_what_was_chosen(model: str) -> None:
    stderr = run(model, "the rain", *QUICK, "-v", "--isa", "scalar", "--max-tokens", "2", "--kv", "bf16").stderr
    for part in ("1 thread: as requested", "isa        scalar", "of bf16: 2,048 tokens", model, "temperature 0.3"):
        assert part in stderr


def test_json_has_the_keys_of_the_contract(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def roofs_of_model(read: object, working_set: int, num_threads: int, isa: str, **how: float) -> HardwareSpec:
        asked.append(how["budget_s"])
        return ROOFS

    monkeypatch.setattr(roofs, "roofs_of_model", roofs_of_model)
    found = as_json(model, "the rain", "--threads", "1", "--max-tokens", "9", "--ignore-eos", "--seed", "3")
    assert set(found) == KEYS
    assert set(found["memory"]) == MEMORY_KEYS
    assert len(asked) == 1
    for name, tokens in (("prefill", found["prompt_tokens"]), ("decode", 8)):
        phase = found[name]
        assert set(phase) == PHASE_KEYS
        assert phase["tokens"] == tokens
        num_bytes = phase["weight_bytes"] + phase["kv_bytes"] + phase["activation_bytes"]
        assert phase["achieved_byte_s"] == pytest.approx(num_bytes / phase["seconds"])
        assert phase["achieved_flop_s"] == pytest.approx(phase["flops"] / phase["seconds"])
        assert (phase["roof_flop_s"], 2e12 <= phase["roof_byte_s"] <= 4e12) == (5e15, True)
        of_compute = phase["achieved_flop_s"] / phase["roof_flop_s"]
        of_memory = phase["achieved_byte_s"] / phase["roof_byte_s"]
        assert phase["roof_fraction"] == pytest.approx(max(of_compute, of_memory))
        assert phase["bound"] == ("compute" if of_compute > of_memory else "memory")
    assert (found["model"], found["seed"], found["finish_reason"]) == (model, 3, "length")
    assert found["memory"]["peak_rss_bytes"] > found["memory"]["weight_bytes"] > 0


def test_json_without_a_probe_has_no_roofs(model: str) -> None:
    found = as_json(model, "the rain", *QUICK, "--max-tokens", "2")
    roof_keys = ("roof_flop_s", "roof_byte_s", "bound", "roof_fraction")
    assert {found[phase][key] for phase in ("prefill", "decode") for key in roof_keys} == {None}
    assert set(found) == KEYS


def test_a_run_above_its_roof_has_it_probed_again(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    low = HardwareSpec("slow", ((2**20, 1.0),), {"f32": 1.0})
    monkeypatch.setattr(roofs, "roofs_of_model", lambda *_, budget_s, refresh: ROOFS if refresh else low)
    found = as_json(model, "the rain", "--threads", "1", "--max-tokens", "2")
    assert found["decode"]["roof_flop_s"] == 5e15


def test_where_the_prompt_comes_from(model: str) -> None:
    def ids(*arguments: str, text: str = "") -> int:
        prompt_tokens: int = as_json(model, *arguments, "--raw", "--max-tokens", "0", *QUICK, text=text)[
            "prompt_tokens"
        ]
        return prompt_tokens

    with LLM(model, threads=1) as llm:
        expected = [len(llm.tokenizer.encode(text)) for text in ("the rain", "in the sea", "the rain\n\nin the sea")]
    assert ids("the rain") == expected[0]
    assert ids(text="in the sea\n") == expected[1]
    assert ids("the rain", text="in the sea\n") == expected[2]


def test_the_template_and_the_system_message(model: str) -> None:
    def count(*arguments: str) -> int:
        prompt_tokens: int = as_json(model, "ab", "--max-tokens", "0", *QUICK, *arguments)["prompt_tokens"]
        return prompt_tokens

    assert count("--raw") < count() < count("--system", "cd")


def test_stop_strings_and_greedy(model: str) -> None:
    options = ("the rain", *QUICK, "--temperature", "0", "--max-tokens", "30", "--ignore-eos")
    text = as_json(model, *options)["text"]
    assert as_json(model, *options, "--stop", text[5:8], "--stop", "\ufffe")["text"] == text[: text.index(text[5:8])]


FAILURES = [
    (["smolm2", "hi"], 1, "did you mean smollm2"),
    (["", "hi"], 1, "'': no such model"),
    (["nowhere.gguf", "hi"], 1, "nowhere.gguf: no such model"),
    (["MODEL", "hi", "--context", "9999"], 1, "9999.*2048"),
    (["MODEL", "hi " * 100, "--context", "64"], 1, r"prompt of \d+ tokens exceeds the context of 64"),
    (["MODEL", "hi", "--max-tokens", "5000"], 1, r"5000 new tokens exceeds the context of 2048"),
    (["MODEL", "hi", "--temperature", "-1"], 1, "temperature must be"),
    (["MODEL", "hi", "--threads", "0"], 1, "threads: 0"),
    (["MODEL", "", "--raw"], 1, "prompt is empty"),
    (["MODEL", "hi", "--kv", "q4"], 2, "'--kv'"),
    (["MODEL", "hi", "--raw", "--system", "x"], 2, "--system"),
    (["MODEL", "hi", "--bogus"], 2, "--bogus.*twostroke run --help"),
    (["MODEL"], 2, "no prompt"),
    (["the rain"], 2, "'the rain' is no model.*run smollm2 PROMPT"),
]


@pytest.mark.parametrize(
    ("flags", "expected"), [((), True), (("--no-speculation",), False), (("--speculation",), True)]
)
def test_drafting_can_be_switched_off(
    model: str, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], expected: bool
) -> None:
    seen, start = [], Speculation.__init__
    monkeypatch.setattr(Speculation, "__init__", lambda self, *, enabled: (seen.append(enabled), start(self))[1])
    assert run(model, "the rain", *QUICK, *flags).exit_code == 0
    assert seen == [expected]


@pytest.mark.parametrize(("arguments", "code", "message"), FAILURES)
def test_failures_are_one_line(model: str, arguments: list[str], code: int, message: str) -> None:
    result = run(*[model if part == "MODEL" else part for part in arguments], "--no-probe")
    assert (result.exit_code, result.stdout) == (code, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("twostroke: ")
    assert re.search(message, line)


def test_files_that_cannot_answer_are_named(model: str, tmp_path: Path) -> None:
    whole = Path(model).read_bytes()
    damaged = {
        "cut.gguf": whole[: len(whole) // 2],
        "empty.gguf": b"",
        "base.gguf": whole.replace(b"tokenizer.chat_template", b"tokenizer.chat_nothing_"),
        "other.gguf": whole.replace(b"\x05\x00\x00\x00\x00\x00\x00\x00llama", b"\x05\x00\x00\x00\x00\x00\x00\x00lxama"),
    }
    messages = {"cut.gguf": "cut.gguf", "empty.gguf": "empty.gguf", "base.gguf": "--raw", "other.gguf": "lxama"}
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
        result = run(str(tmp_path / name), "hi", *QUICK)
        assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1), result.output
        assert messages[name] in result.stderr


def test_standard_input_that_is_no_text(model: str) -> None:
    result = run(model, *QUICK, text=b"ab\xff")
    assert (result.exit_code, "byte 2 is 0xff" in result.stderr) == (1, True)


# --- as a process -----------------------------------------------------------------------------------------------------


def start(*arguments: str, **options: Any) -> "subprocess.Popen[str]":
    code = "from twostroke.cli.main import main; main()"
    command = [sys.executable, "-c", code, "run", *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(command, text=True, **pipes)


def test_ctrl_c_ends_the_answer_and_says_130(endless: str) -> None:
    process = start(endless, "the rain", *QUICK, "--ignore-eos", "--temperature", "1")
    assert process.stdout is not None
    first = process.stdout.read(20)
    os.kill(process.pid, signal.SIGINT)
    rest, stderr = process.communicate(timeout=60)
    assert (process.returncode, len(first)) == (130, 20)
    assert rest.endswith("\n")
    assert "cancelled" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr


def test_a_reader_that_leaves_ends_it_quietly(endless: str) -> None:
    process = start(endless, "the rain", *QUICK, "--ignore-eos", "--temperature", "1")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(5)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) != 0


def test_waiting_for_standard_input_is_said(model: str) -> None:
    process = start(model, *QUICK, "--max-tokens", "1", stdin=subprocess.PIPE)
    assert process.stderr is not None
    started = time.monotonic()
    assert "standard input" in process.stderr.readline()
    assert time.monotonic() - started < 60
    process.communicate("the rain", timeout=60)
    assert process.returncode == 0
