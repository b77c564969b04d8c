"""Lag: how late the generator itself is. Owns the measurement, and when a run must be called invalid for it.

A tick is due every few milliseconds. How late it comes is how long a socket may have been ready before it was read.
"""

import asyncio
import time
from array import array
from dataclasses import dataclass

import numpy as np

TICK_SECONDS = 0.005
MAX_P50_SECONDS, MAX_P50_SHARE = 0.001, 0.05  # the median lag: of the median TTFT, where that is more
MAX_P99_SECONDS, MAX_P99_SHARE = 0.003, 0.1  # the 99th percentile: of that of TTFT
MAX_CPU_SHARE = 0.9  # of one core: the event loop is one thread


@dataclass(frozen=True, slots=True)
class Lag:
    """The generator's own lateness in seconds, and the share of one core that its thread used."""

    p50: float
    p99: float
    max: float
    cpu_share: float
    send_p99: float | None = None

    def faults(self, ttft_p50: float, ttft_p99: float) -> list[str]:
        """Why figures measured so are not the server's; empty where they are. TTFT in seconds."""
        found = []
        limit = max(MAX_P50_SECONDS, MAX_P50_SHARE * ttft_p50)
        if self.p50 > limit:
            found.append(f"sockets were read {_ms(self.p50)} late at p50, over {_ms(limit)}")
        limit = max(MAX_P99_SECONDS, MAX_P99_SHARE * ttft_p99)
        if self.p99 > limit:
            found.append(f"sockets were read {_ms(self.p99)} late at p99, over {_ms(limit)}")
        if self.send_p99 is not None and self.send_p99 > limit + TICK_SECONDS:
            found.append(f"requests left {_ms(self.send_p99)} after they were due at p99")
        if self.cpu_share > MAX_CPU_SHARE:
            found.append(f"{self.cpu_share:.0%} of a core in use, which is all that one thread has")
        return [f"the generator was the bottleneck: {fault}" for fault in found]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


class LagMeter:
    """Ticks while a stage runs: `async with LagMeter() as meter`, then `meter.lag([])`."""

    def __init__(self) -> None:
        self._late = array("d")
        self._task: asyncio.Task[None] | None = None
        self._started = self._cpu_started = self._seconds = self._cpu_seconds = 0.0

    async def __aenter__(self) -> "LagMeter":
        self.reset()
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._seconds = time.perf_counter() - self._started
        self._cpu_seconds = time.thread_time() - self._cpu_started
        if self._task is not None:
            self._task.cancel()

    def reset(self) -> None:
        """Forgets what was measured until now."""
        self._late = array("d")
        self._started, self._cpu_started = time.perf_counter(), time.thread_time()

    def lag(self, send_lags: list[float]) -> Lag:
        """What was measured; `send_lags` are those of the open loop's requests."""
        late = np.array(self._late if self._late else [0.0])
        p50, p99 = np.percentile(late, [50, 99])
        send_p99 = float(np.percentile(send_lags, 99)) if send_lags else None
        cpu_share = self._cpu_seconds / self._seconds if self._seconds else 0.0
        return Lag(float(p50), float(p99), float(late.max()), cpu_share, send_p99)

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = time.perf_counter() + TICK_SECONDS
            event = asyncio.Event()
            loop.call_later(TICK_SECONDS, event.set)
            await event.wait()
            self._late.append(max(0.0, time.perf_counter() - due))
