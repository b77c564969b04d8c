"""Offline batches: the same answers as over HTTP, run together, whole lines only, faults that name their line."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.server.running import RunningServer

from twostroke import LLM
from twostroke.errors import ConfigError, TwostrokeError
from twostroke.program.phase import Phase
from twostroke.server.batch.lines import batch_lines
from twostroke.server.batch.output import BatchOutput
from twostroke.server.batch.run import BatchCounts, BatchRun, survey

CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
MESSAGES = [{"role": "user", "content": "the rain in the sea"}]
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": (CHAT, {"messages": MESSAGES, "max_tokens": 12, "temperature": 0, "model": "tiny"}),
    "drawn": (CHAT, {"messages": MESSAGES, "max_tokens": 12, "seed": 7, "n": 3, "logprobs": True}),
    "json": (CHAT, {"messages": MESSAGES, "max_tokens": 30, "seed": 1, "response_format": {"type": "json_object"}}),
    "prompts": (TEXT, {"prompt": ["one", "two"], "max_tokens": 5, "temperature": 0, "echo": True, "logprobs": 2}),
    "ids": (TEXT, {"prompt": [5, 6, 7], "max_tokens": 5, "temperature": 0}),
    "vector": (EMBED, {"input": ["tea", "a stone"], "encoding_format": "base64"}),
    "unknown field": (TEXT, {"prompt": "x", "mood": 1}),
    "wrong type": (TEXT, {"prompt": 1}),
    "not supported": (CHAT, {"messages": MESSAGES, "audio": {"voice": "a"}}),
    "other model": (CHAT, {"messages": MESSAGES, "model": "gpt"}),
    "too long": (TEXT, {"prompt": [5] * 100_000}),
    "no messages": (CHAT, {"messages": []}),
}


def write_batch(path: Path, requests: dict[str, tuple[str, dict[str, Any]]]) -> Path:
    lines = [{"custom_id": name, "method": "POST", "url": url, "body": body} for name, (url, body) in requests.items()]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return path


def answers_of(path: Path) -> dict[str, dict[str, Any]]:
    """By custom_id; every line is whole and no two have one."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    found = {line["custom_id"]: line for line in lines}
    assert len(found) == len(lines) and path.read_bytes().endswith(b"\n")
    return found


def run_batch(llm: LLM, source: Path, target: Path, names: Sequence[str] = ("tiny",)) -> BatchCounts:
    with BatchOutput(target) as output:
        counts = survey(source, output)
        asyncio.run(BatchRun(source, output, counts, lambda: None).run(llm, tuple(names)))
    return counts


def essence(body: dict[str, Any]) -> dict[str, Any]:
    """What of a response does not tell when and under which id it was made."""
    return {key: value for key, value in body.items() if key not in ("id", "created", "twostroke")} | {
        "usage": {key: count for key, count in body.get("usage", {}).items() if not key.endswith("details")}
    }


@pytest.fixture(scope="module")
def alone(tiny_path: Path) -> Any:
    with LLM(tiny_path, threads=1, max_batch=8) as llm:
        yield llm


def test_answers_are_those_over_http(server: RunningServer, alone: LLM, tmp_path: Path) -> None:
    counts = run_batch(alone, write_batch(tmp_path / "in", REQUESTS), tmp_path / "out")
    found = answers_of(tmp_path / "out")
    assert found.keys() == REQUESTS.keys()
    for name, (url, body) in REQUESTS.items():
        response = server.post(url, **body)
        own = found[name]["response"]
        assert own["status_code"] == response.status_code, name
        expected = response.json()
        if response.status_code != 200:
            expected["error"]["message"] = expected["error"]["message"].replace("tiny, other name", "tiny")
        assert essence(own["body"]) == essence(expected), name
        assert found[name]["error"] is None and own["request_id"] == f"req-{list(REQUESTS).index(name) + 1:06}"
    assert (counts.num_lines, counts.num_answered, counts.num_failed, counts.num_kept) == (12, 12, 6, 0)
    usages = [line["response"]["body"].get("usage", {}) for line in found.values()]
    assert counts.completion_tokens == sum(usage.get("completion_tokens", 0) for usage in usages) > 0
    assert counts.prompt_tokens == sum(usage.get("prompt_tokens", 0) for usage in usages) > 0


def test_requests_run_together(alone: LLM, tmp_path: Path) -> None:
    requests = {f"{n}": (TEXT, {"prompt": f"{n} stones", "max_tokens": 40, "ignore_eos": True}) for n in range(24)}
    run_batch(alone, write_batch(tmp_path / "in", requests), tmp_path / "out")
    rows = [
        step.phases[Phase.DECODE].rows for step in alone.running.engine.ledger.recent if Phase.DECODE in step.phases
    ]
    assert sum(count >= 8 for count in rows[-120:]) > 60  # of 24 x 40 rows in 120 steps at best, eight at a time


def test_bad_lines_are_named_and_told_once(alone: LLM, tmp_path: Path) -> None:
    good = {"custom_id": "a", "method": "POST", "url": TEXT, "body": {"prompt": "x", "max_tokens": 2}}
    bad: dict[int, tuple[bytes, str, str | None]] = {
        2: (b"oops", "line 2 is not valid JSON", None),
        3: (b"[1]", "line 3 must be a JSON object, not an array", None),
        4: (json.dumps(good | {"method": "GET", "custom_id": "b"}).encode(), "line 4: method: ", "b"),
        5: (json.dumps(good | {"url": "/v1/models", "custom_id": "c"}).encode(), "line 5: url: ", "c"),
        6: (json.dumps(good).encode(), "line 6 has the custom_id of line 1, 'a'", "a"),
        7: (json.dumps(good | {"custom_id": ""}).encode(), "line 7: custom_id: ", ""),
        8: (json.dumps(good | {"more": 1, "custom_id": "d"}).encode(), "line 8: unknown field more", "d"),
        9: (b'{"custom_id": "\xff"}', "line 9 is not valid JSON", None),
        11: (b'{"custom_id": NaN}', "line 11 is not valid JSON", None),
    }
    lines = [json.dumps(good).encode(), *(bad[n][0] if n in bad else b"  " for n in range(2, 12))]
    (tmp_path / "in").write_bytes(b"\n".join(lines))  # the last line has no end
    for _ in range(2):
        counts = run_batch(alone, tmp_path / "in", tmp_path / "out")
        written = [json.loads(line) for line in (tmp_path / "out").read_text("utf-8").splitlines()]
        assert len(written) == counts.num_lines == 10  # the blank line is none
        faults = {line["error"]["line"]: line for line in written if line["error"]}
        assert faults.keys() == bad.keys()
        for number, (_, message, custom_id) in bad.items():
            assert faults[number]["error"]["message"].startswith(message)
            assert (faults[number]["custom_id"], faults[number]["response"]) == (custom_id, None)
    assert (counts.num_kept, counts.num_answered) == (10, 0)


def test_a_line_may_be_long_but_not_endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twostroke.server.batch.lines.MAX_LINE", 200)
    line = json.dumps({"custom_id": "a", "method": "POST", "url": TEXT, "body": {"prompt": "x"}})
    (tmp_path / "in").write_text(f"{line}\n{'x' * 1000}\n{line.replace('a', 'b', 1)}{' ' * 200}\n{line}\n")
    found = [(line.number, line.fault.code if line.fault else None) for line in batch_lines(tmp_path / "in")]
    assert found == [(1, None), (2, "line_too_long"), (3, "line_too_long"), (4, "duplicate_custom_id")]


def test_a_cut_last_line_is_removed_and_run_again(alone: LLM, tmp_path: Path) -> None:
    requests = {name: REQUESTS[name] for name in ("greedy", "ids", "other model", "vector")}
    source, target = write_batch(tmp_path / "in", requests), tmp_path / "out"
    run_batch(alone, source, target)
    whole = answers_of(target)
    lines = target.read_bytes().splitlines(keepends=True)
    for kept in (lines[0][:1], lines[0] + lines[1][:-1], lines[0] + lines[1] + lines[2][:40], b""):
        target.write_bytes(kept)
        with BatchOutput(target) as output:
            assert output.num_cut == len(kept.split(b"\n")[-1])
        counts = run_batch(alone, source, target)
        assert counts.num_kept == kept.count(b"\n") and counts.num_answered == 4 - counts.num_kept
        again = answers_of(target)
        assert {name: essence(line["response"]["body"]) for name, line in again.items()} == {
            name: essence(line["response"]["body"]) for name, line in whole.items()
        }


def test_outputs_that_are_not_this_runs(alone: LLM, tmp_path: Path) -> None:
    source, target = write_batch(tmp_path / "in", {"a": REQUESTS["ids"]}), tmp_path / "out"
    run_batch(alone, source, target)
    with BatchOutput(target), pytest.raises(ConfigError, match="is being written by another run"):
        BatchOutput(target)
    other = write_batch(tmp_path / "other", {"b": REQUESTS["ids"]})
    with BatchOutput(target) as output, pytest.raises(ConfigError, match="answers the custom_id 'a', which"):
        survey(other, output)
    kept = target.read_bytes()
    for line in (b"notes\n", b"{}\n", b"[]\n", b"1\n", b'{"custom_id": "a", "error": {"message": "x"}}\n'):
        target.write_bytes(kept + line)
        with pytest.raises(ConfigError, match=r"line 2 of .* is no answer of a batch"):
            BatchOutput(target)
        assert target.read_bytes() == kept + line
    (tmp_path / "empty").write_text("\n \n")
    with BatchOutput(tmp_path / "new") as output, pytest.raises(ConfigError, match="has no requests"):
        survey(tmp_path / "empty", output)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_that_stops_ends_the_run(tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread dies in the first step, with every line under way."""
    source = write_batch(tmp_path / "in", {"a": REQUESTS["ids"], "b": REQUESTS["greedy"]})
    with LLM(tiny_path, threads=1, max_batch=2) as llm, BatchOutput(tmp_path / "out") as output:
        counts = survey(source, output)
        monkeypatch.setattr(llm.running.engine, "begin", sys.exit)
        with pytest.raises(TwostrokeError, match="the engine has stopped"):
            asyncio.run(BatchRun(source, output, counts, lambda: None).run(llm, ("tiny",)))
    assert (tmp_path / "out").read_bytes() == b""
