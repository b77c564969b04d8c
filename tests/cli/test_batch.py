"""`twostroke batch` as a process: killed, interrupted, gone on with; what it says, and how it fails."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command_line import invoke
from tests.tiny import write_tiny_gguf

from twostroke.cli.batch_progress import progress_text
from twostroke.errors import ConfigError
from twostroke.server.batch.run import BatchCounts

PROGRAM = "from twostroke.cli.main import main; main()"
NUM_REQUESTS = 60
SLOWER = """
import time
from itertools import count
from twostroke.engine.engine import Engine
finish, steps = Engine.finish, count()
Engine.finish = lambda engine, *goes_on: (next(steps) > 250 and time.sleep(0.05), finish(engine, *goes_on))[1]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("batch") / "tiny.gguf", seed=3)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Greedy and seeded requests, and a bad line in their middle."""
    path = tmp_path_factory.mktemp("batch") / "in.jsonl"
    lines = []
    for number in range(NUM_REQUESTS):
        sampling = {"temperature": 0} if number % 2 else {"seed": number}
        body = {"prompt": f"{number} stones", "max_tokens": 120, "ignore_eos": True, **sampling}
        line = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions", "body": body}
        lines.append(json.dumps(line))
    lines.insert(30, '{"custom_id": "bad"}')
    path.write_text("\n".join(lines) + "\n")
    return path


def command(model: Path, source: Path, target: Path, *more: str, program: str = PROGRAM) -> list[str]:
    options = ("--model", str(model), "--max-batch", "4", "--context", "256", "--threads", "1")
    return [sys.executable, "-c", program, "batch", str(source), str(target), *options, *more]


def texts(path: Path) -> dict[str, Any]:
    """What each request got, by its name; no request has two lines."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {
        line["custom_id"]: line["response"]["body"]["choices"] if line["response"] else line["error"] for line in lines
    }
    assert len(found) == len(lines)
    return found


@pytest.fixture(scope="module")
def whole(model: Path, source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an uninterrupted run writes."""
    target = tmp_path_factory.mktemp("whole") / "out.jsonl"
    done = subprocess.run(command(model, source, target, "--json"), capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    summary = json.loads(line)
    assert (summary["num_lines"], summary["num_answered"], summary["num_failed"]) == (61, 61, 1)
    assert summary["completion_tokens"] == 120 * NUM_REQUESTS
    assert summary["decode"]["tokens"] == 119 * NUM_REQUESTS and summary["tok_s"] > 0
    assert (summary["input"], summary["output"]) == (str(source), str(target))
    assert done.stderr.splitlines()[0].startswith("batch ") and "61 answered, 1 of them errors" in done.stderr
    found = texts(target)
    assert len(found) == 61 and found["bad"]["line"] == 31
    return found


@pytest.mark.parametrize("name", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.large)])
def test_what_was_answered_is_kept_and_the_rest_is_run(
    model: Path, source: Path, whole: dict[str, Any], tmp_path: Path, name: signal.Signals
) -> None:
    target = tmp_path / "out.jsonl"
    for _ in range(2 if name is signal.SIGKILL else 1):  # in the middle, then to the end
        before = target.read_bytes().count(b"\n") if target.exists() else 0
        slower = command(model, source, target, program=SLOWER + PROGRAM)  # once some are answered: time for the signal
        process = subprocess.Popen(slower, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not target.exists() or target.read_bytes().count(b"\n") < before + 5:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.002)
        process.send_signal(name)
        _, said = process.communicate(timeout=60)
        if name is signal.SIGINT:
            assert process.returncode == 130 and "the same command goes on from there" in said
            assert target.read_bytes().endswith(b"\n") and "Traceback" not in said
        kept = target.read_bytes()
        assert before + 5 <= kept.count(b"\n") < 61
    done = subprocess.run(command(model, source, target), capture_output=True, text=True, check=True)
    assert f"{kept.count(chr(10).encode())} kept from before" in done.stderr
    assert target.read_bytes().startswith(kept[: kept.rindex(b"\n") + 1])
    assert texts(target) == whole
    again = subprocess.run(command(model, source, target), capture_output=True, text=True, check=True)
    assert again.stderr == "batch      all 61 are answered already\n" and texts(target) == whole


def test_what_cannot_be_run(model: Path, source: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "x"
    for arguments, said in (
        ((missing, tmp_path / "out"), "cannot read"),
        ((source, missing), f"cannot write {missing}: No such file"),
        ((source, Path("/dev/null")), "cannot write /dev/null: it is no file"),
        ((source, source), "IN and OUT are one file"),
        ((tmp_path, tmp_path / "out"), "cannot read"),
    ):
        result = invoke("batch", *map(str, arguments), "--model", str(model))
        assert isinstance(result.exception, ConfigError) and said in str(result.exception)


def test_a_full_disk_is_one_line_and_loses_nothing(
    model: Path, source: Path, whole: dict[str, Any], tmp_path: Path
) -> None:
    target = tmp_path / "out.jsonl"
    limited = ["bash", "-c", 'ulimit -f 8; exec "$@"', "bash", *command(model, source, target)]  # 8 KiB a file
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("twostroke: ") and "File too large" in done.stderr
    assert target.stat().st_size <= 8192
    done = subprocess.run(command(model, source, target), capture_output=True, text=True, check=True)
    assert "a last line that was cut" in done.stderr and texts(target) == whole


def test_how_far_it_is() -> None:
    counts = BatchCounts(num_lines=40, num_kept=10, num_answered=10, num_failed=2, completion_tokens=900)
    assert progress_text(counts, 30.0) == "batch [############............] 20 of 40  2 errors  30 tok/s  1:00 min left"
    counts = BatchCounts(num_lines=2, num_kept=1, num_answered=1)
    assert progress_text(counts, 0.0) == "batch [########################] 2 of 2"
