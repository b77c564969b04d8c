"""`twostroke serve` as a process: what it says, that it answers, and how it ends on signals."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.tiny import write_tiny_gguf

PROGRAM = "from twostroke.cli.main import main; main()"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("serve") / "tiny.gguf", seed=3)


class Served:
    """A running server's process; `lines` are those of its stderr so far."""

    def __init__(self, model: Path, *options: str, program: str = PROGRAM) -> None:
        command = [sys.executable, "-c", program, "serve", str(model), "--port", "0", "--no-probe", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.lines: list[str] = []
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("serving"):
                break
        self.url = self.lines[-1].split()[1].removesuffix("/v1")
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(line.rstrip("\n") for line in self.process.stderr)

    def end(self, seconds: float = 60) -> int:
        status = self.process.wait(seconds)
        self._reader.join(seconds)
        return status


@contextmanager
def served(model: Path, *options: str, program: str = PROGRAM) -> Iterator[Served]:
    server = Served(model, *options, program=program)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.end()


def stream_of(client: httpx.Client, **body: Any) -> Iterator[str]:
    with client.stream("POST", "/v1/completions", json={"prompt": "the rain", "stream": True, **body}) as response:
        yield from (line for line in response.iter_lines() if line.startswith("data: "))


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_finishes_what_runs(model: Path, name: signal.Signals) -> None:
    with served(model, "--context", "1024") as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert server.lines[0].startswith("model      tiny.gguf: llama, 1,024 tokens a request")
        assert "tokens for all requests" in server.lines[1]
        assert client.get("/v1/models").json()["data"][0]["id"] == "tiny.gguf"
        events = stream_of(client, max_tokens=1000, ignore_eos=True)
        next(events)
        server.process.send_signal(name)
        rest = list(events)
        assert rest[-1] == "data: [DONE]" and '"finish_reason":"length"' in rest[-2]
        assert server.end() == 0
        text = "\n".join(server.lines)
        assert f"{name.name}: draining" in text and "every request was answered" in text
        assert "Traceback" not in text


def test_its_log_in_json(model: Path) -> None:
    with served(model, "--log-format", "json", "--lenient") as server:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            headers = {"x-request-id": "abc"}
            client.post("/v1/completions", json={"prompt": "x", "max_tokens": 2, "mood": 1}, headers=headers)
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
        entries = [json.loads(line) for line in server.lines if line.startswith("{")]
        (access,) = [entry for entry in entries if entry["logger"] == "twostroke.access"]
        assert access["request_id"] == "abc" and access["status"] == 200 and access["ignored"] == ["mood"]
        assert access["completion_tokens"] <= 2 and access["seconds"] > 0


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("--max-queued", "0"), 1, "max_queued must be at least 1"),
        (("--api-key-file", "/nonexistent"), 1, "/nonexistent"),
        (("--host", "203.0.113.7"), 1, "cannot listen on 203.0.113.7"),
        (("--metrics", "maybe"), 2, "metrics"),
    ],
)
def test_what_cannot_be_served_is_one_line(model: Path, options: tuple[str, ...], status: int, said: str) -> None:
    command = [sys.executable, "-c", PROGRAM, "serve", str(model), "--no-probe", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert len(done.stderr.splitlines()) == 1 and said in done.stderr


FAULT = """
from twostroke.engine.scheduler import Scheduler
def schedule(self):
    raise ArithmeticError("an injected fault")
Scheduler.schedule = schedule
"""


def test_a_fault_of_the_engine_ends_the_process_with_an_error(model: Path) -> None:
    with served(model, program=FAULT + PROGRAM) as server:
        started = time.monotonic()
        response = httpx.post(f"{server.url}/v1/completions", json={"prompt": "the rain"}, timeout=60)
        assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_stopped")
        assert server.end() == 1 and time.monotonic() - started < 50
    assert any("the engine has stopped: ArithmeticError: an injected fault" in line for line in server.lines)
    assert 'raise ArithmeticError("an injected fault")' not in server.lines[-1] and "Traceback" in str(server.lines)
    assert server.lines[-1].startswith("twostroke: the engine has stopped by a fault")


SLOW = """
import time
from twostroke.engine.engine import Engine
finish = Engine.finish
Engine.finish = lambda engine, *goes_on: (time.sleep(0.5), finish(engine, *goes_on))[1]
"""


def test_a_signal_during_a_long_prefill_ends_in_time(model: Path) -> None:
    """1,900 tokens at 16 a step of 0.5 s are a minute; 0.5 s are left to it (SRV-06)."""
    options = ("--max-step-tokens", "16", "--drain", "0.5")
    with served(model, *options, program=SLOW + PROGRAM) as server, httpx.Client(base_url=server.url) as client:
        events = stream_of(client, prompt=[5] * 1900, max_tokens=1, return_progress=True)
        assert '"processed"' in next(events)
        server.process.send_signal(signal.SIGTERM)
        signalled = time.monotonic()
        assert any("shutting_down" in line for line in events)
        assert server.end() == 0 and time.monotonic() - signalled < 30
        assert any("time is up" in line for line in server.lines)


@pytest.mark.large
def test_signals_under_load_cut_no_answer(model: Path) -> None:
    """Twenty times: sixteen streams under way, some still queued, and then SIGTERM."""
    for _ in range(20):
        with served(model, "--max-batch", "8") as server, httpx.Client(base_url=server.url, timeout=60) as client:
            ends: list[list[str]] = []

            def job(client: httpx.Client = client, ends: list[list[str]] = ends) -> None:
                ends.append(list(stream_of(client, max_tokens=300, ignore_eos=True)))

            threads = [threading.Thread(target=job) for _ in range(16)]
            for thread in threads:
                thread.start()
            while len(ends) < 2:
                time.sleep(0.001)
            server.process.send_signal(signal.SIGTERM)
            for thread in threads:
                thread.join(60)
            assert server.end() == 0
            whole = [lines for lines in ends if lines]  # those refused while draining have none
            assert all(lines[-1] == "data: [DONE]" and "error" not in "".join(lines) for lines in whole)
            assert len(whole) >= 8
