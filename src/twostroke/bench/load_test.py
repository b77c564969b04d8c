"""load_test: a whole load test of one endpoint, from its configuration to its figures. Owns the order of things."""

import asyncio
import gc
import resource
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twostroke.bench.calibration import Calibration
from twostroke.bench.client import Client
from twostroke.bench.config import LoadTestConfig
from twostroke.bench.conversation import Dataset, MadeUp, Scale, open_source
from twostroke.bench.driver import Driver, OnLive
from twostroke.bench.endpoint import Endpoint
from twostroke.bench.load import stages_of
from twostroke.bench.metrics import Figures, figures_of
from twostroke.bench.slo import Slo
from twostroke.bench.tokenizers import open_counter

if TYPE_CHECKING:
    from twostroke.bench.expectation import Expectation, Expecting

OnStage = Callable[[Figures, "Expectation | None"], None]


@dataclass(frozen=True, slots=True)
class LoadTest:
    """A load test that was run. `started` is in seconds since 1970, `origin` the same moment of `time.perf_counter`."""

    config: LoadTestConfig
    endpoint: Endpoint
    scale: Scale
    workload: dict[str, Any]
    seed: int
    started: float
    origin: float
    stages: tuple[Figures, ...]
    expected: tuple["Expectation | None", ...]
    notes: tuple[str, ...]
    was_stopped: bool

    @property
    def is_valid(self) -> bool:
        """Whether the server was measured in every stage, and not this generator."""
        return not any(stage.faults for stage in self.stages)


def load_test(config: LoadTestConfig, on_live: OnLive, on_stage: OnStage) -> LoadTest:
    """Runs it. `on_live` is called twice a second, `on_stage` after each stage; both must be quick. Ctrl-C ends the
    run, and what was gathered is returned; before the first stage it raises KeyboardInterrupt.

    Raises ConfigError, EndpointError, InvalidRequestError (a dataset), and what a tokenizer raises.
    """
    with _many_files():
        return asyncio.run(_load_test(config, on_live, on_stage))


async def _load_test(config: LoadTestConfig, on_live: OnLive, on_stage: OnStage) -> LoadTest:
    stages, slo = stages_of(config), None if config.slo is None else Slo.parse(config.slo)
    seed = secrets.randbits(32) if config.seed is None else config.seed
    expecting = _expecting(config)
    counter = None if config.tokenizer is None else open_counter(config.tokenizer)
    async with Client(config.url, config.api_key, config.timeout) as client:
        calibration = Calibration(client, Endpoint.of(config))
        scale = await calibration.settle(counter, config.tokenizer or "")
        source = open_source(config, scale, seed)
        driver = Driver(client, calibration.endpoint, source, seed)
        started, origin = time.time(), time.perf_counter()
        found: list[Figures] = []
        expected: list[Expectation | None] = []
        with _stopping(driver), _without_collections():
            for stage in stages:
                figures = figures_of(await driver.run(stage, on_live), slo, _expected_cached(config, scale, source))
                found.append(figures)
                expected.append(None if expecting is None else expecting.of(figures))
                on_stage(figures, expected[-1])
                if driver.is_stopped:
                    break
    return LoadTest(
        config,
        calibration.endpoint,
        scale,
        source.describe(),
        seed,
        started,
        origin,
        tuple(found),
        tuple(expected),
        tuple(calibration.notes),
        driver.is_stopped,
    )


def _expecting(config: LoadTestConfig) -> "Expecting | None":
    if config.plan is None:
        return None
    from twostroke.bench.expectation import Expecting  # the planner, which most runs do without

    return Expecting(config.plan, config.hardware)


def _expected_cached(config: LoadTestConfig, scale: Scale, source: MadeUp | Dataset) -> float:
    """The share of prompt tokens that every prompt has in common; all of them may be where turns repeat history."""
    if isinstance(source, Dataset) or config.turns > 1:
        return 1.0
    return min(1.0, config.shared_prefix + scale.overhead / source.mean_prompt_tokens)


@contextmanager
def _stopping(driver: Driver) -> Iterator[None]:
    """Ctrl-C stops the driver; a second one is as usual."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        driver.stop()

    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (ValueError, RuntimeError):  # not the main thread, which alone gets signals
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@contextmanager
def _without_collections() -> Iterator[None]:
    """No pause for collecting garbage while times are taken."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _many_files() -> Iterator[None]:
    """As many connections as the system lets a process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
