"""RoofWatch: the roofs that answers are compared with. Owns measuring them again once an answer came out above one.

A roof measured while other programs ran is too low. An answer above it shows that; the roof is then measured again,
when the engine has nothing to do, and what is higher counts.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from twostroke.roofline.hardware import HardwareSpec

_TOO_HIGH = 1.02  # a fraction above this is the roof's defect
_LEAST_PAUSE_S = 60.0  # between two measurements
_LOOK_S = 0.5
_log = logging.getLogger("twostroke.server")


class RoofWatch:
    """`hardware` is None where roofs are not known. `measure` takes about half a second, between steps. Belongs to the
    event loop's thread."""

    def __init__(
        self,
        hardware: HardwareSpec | None = None,
        measure: Callable[[], HardwareSpec] | None = None,
        is_idle: Callable[[], bool] = lambda: True,
    ) -> None:
        self.hardware = hardware
        self._measure = measure
        self._is_idle = is_idle
        self._again: asyncio.Task[None] | None = None
        self._measured_at = float("-inf")

    def saw(self, fraction: float | None) -> None:
        """An answer reached this share of its roof."""
        if fraction is None or fraction <= _TOO_HIGH or self._measure is None or self._again is not None:
            return
        if asyncio.get_running_loop().time() - self._measured_at > _LEAST_PAUSE_S:
            self._again = asyncio.get_running_loop().create_task(self._measure_again(self._measure))

    def close(self) -> None:
        """No more measuring."""
        if self._again is not None:
            self._again.cancel()

    async def _measure_again(self, measure: Callable[[], HardwareSpec]) -> None:
        while not self._is_idle():
            await asyncio.sleep(_LOOK_S)
        try:
            found = await asyncio.to_thread(measure)
            self.hardware = found if self.hardware is None else higher(self.hardware, found)
        except Exception:
            _log.exception("the roofs could not be measured again")
        self._measured_at = asyncio.get_running_loop().time()
        self._again = None


def higher(one: HardwareSpec, other: HardwareSpec) -> HardwareSpec:
    """The later measurement, with the higher rate of each kind."""
    best = max(rate for _, rate in one.read_bandwidth)
    reads = tuple((size, max(rate, best)) for size, rate in other.read_bandwidth)
    flops = {kind: max(rate, one.flops.get(kind, 0.0)) for kind, rate in other.flops.items()}
    return replace(other, read_bandwidth=reads, flops=flops)
