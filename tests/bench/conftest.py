"""The scripted server as a process of its own."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from twostroke.bench.config import LoadTestConfig
from twostroke.bench.load_test import LoadTest, load_test

Run = Callable[..., LoadTest]


@pytest.fixture(scope="session")
def mock_url() -> Iterator[str]:
    command = [sys.executable, str(Path(__file__).with_name("mock_server.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.terminate()


@pytest.fixture
def run(mock_url: str) -> Run:
    """Runs a load test against the scripted server; a script, or a list of them, says how it answers."""

    def run(script: object, path: str = "", extra: dict[str, Any] | None = None, **fields: Any) -> LoadTest:
        fields = {"requests": 4, "warmup": 0, "output_tokens": "10", **fields}
        body = json.dumps({"script": script, **(extra or {})})
        config = LoadTestConfig(mock_url + path, extra=body, **fields)
        return load_test(config, lambda live: None, lambda figures, expected: None)

    return run


@pytest.fixture
def log(mock_url: str) -> Callable[[LoadTest], list[dict[str, Any]]]:
    """What the server noted of a test's own requests, calibration left out: times, bodies."""

    def log(test: LoadTest) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{mock_url}/log") as answer:
            entries: list[dict[str, Any]] = json.load(answer)
        return [entry for entry in entries if entry["read"] >= test.origin and entry["body"].get("max_tokens") != 2]

    return log
