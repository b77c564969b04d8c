"""Real models for the tests that need one, from the user's cache; the instruction sets tested. Owns no test data."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy loads: its own threads fight the core's on few CPUs

from twostroke.weights.fetch import pull, resolve

# A shell's background jobs ignore Ctrl-C, and so do the processes they start; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--emulate-amx",
        action="store_true",
        help="tests of every instruction set run on amx, too, its tiles emulated where the machine has none",
    )


@pytest.hookimpl(trylast=True)  # after pytest's faulthandler, which takes the signal that the tile unit works by
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--emulate-amx"):
        from tests.native.amx.tile_unit import EmulationError, isas_with_amx

        from twostroke.native import _core

        try:
            isas = isas_with_amx()
        except EmulationError as why:
            raise pytest.UsageError(f"--emulate-amx: {why}") from None
        _core.available_isas = lambda: list(isas)


@pytest.fixture(scope="session", autouse=True)
def no_fsync() -> Iterator[None]:
    """Nothing here has to survive a loss of power; some tests write a thousand files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2 135M (Q4_1 and Q8_0 tensors), fetched once (93 MB) if it is not in the cache."""
    return pull("smollm2", progress=lambda progress: None)


@pytest.fixture(scope="session")
def qwen_path(request: pytest.FixtureRequest) -> Path:
    """Qwen2.5-Coder 1.5B (Q4_K and Q6_K tensors); fetched (1.1 GB) only when tests marked `large` are asked for."""
    selected = str(request.config.getoption("-m"))
    if "large" in selected and "not large" not in selected:
        return pull("qwen2.5-coder-1.5b", progress=lambda progress: None)
    return resolve("qwen2.5-coder-1.5b")
