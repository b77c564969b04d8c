"""An empty cache, a model file worth fetching, and a hub to fetch from. Owns test data only."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.weights.gguf_writer import F32, GGUFWriter
from tests.weights.hub import Hub, serve_hub


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory, empty, for this test alone."""
    path = tmp_path / "cache"
    monkeypatch.setenv("TWOSTROKE_CACHE", str(path))
    return path


@pytest.fixture(scope="session")
def model_bytes() -> bytes:
    """A sound GGUF file of about 1 MB."""
    writer = GGUFWriter()
    writer.start(1, 0)
    writer.tensor("t", (1 << 18,), F32, 0)
    return writer.body(1 << 20)


@pytest.fixture(scope="session")
def hub_host() -> Iterator[Hub]:
    """One for all tests; each begins with `hub_host.begin`."""
    with serve_hub() as hub:
        yield hub
