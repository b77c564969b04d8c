"""One tiny model and one server for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.running import RunningServer, running
from tests.tiny import write_tiny_gguf

from twostroke import LLM


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", seed=3)


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> Iterator[LLM]:
    with LLM(tiny_path, threads=1, max_batch=8) as llm:
        yield llm


@pytest.fixture(scope="session")
def server(tiny: LLM) -> Iterator[RunningServer]:
    with running(tiny) as server:
        yield server
