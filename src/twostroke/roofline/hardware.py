"""HardwareSpec: what a machine can do at best. Owns the record and its reading; where the numbers come from is said in
`source`: probed here, or published by a vendor.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.errors import ConfigError

ReadPoint = tuple[int, float]  # working set in bytes, bytes per second
ARITHMETIC = ("16bit", "f32")  # what linear layers are computed in, best first


@dataclass(frozen=True, slots=True)
class HardwareSpec:
    """A machine's roofs. Rates in bytes and FLOPs per second; None where nothing is known.

    read_bandwidth  by working set, ascending; one point where a vendor states one number
    flops           dense FLOP/s by kind of arithmetic: "f32", "16bit"
    memory_span     how slow and how fast memory was read at other times, as shares of `read_bandwidth`
    source          "probed", or where the numbers are published
    probed_at       ISO date and time (UTC) of the oldest measurement in it

    Raises ConfigError when a number is not positive and finite, or no bandwidth is given.
    """

    name: str
    read_bandwidth: tuple[ReadPoint, ...]
    flops: Mapping[str, float]
    memory_bytes: int | None = None
    isa: str | None = None
    num_threads: int | None = None
    memory_span: tuple[float, float] = (1.0, 1.0)
    source: str = "probed"
    probed_at: str | None = None

    def __post_init__(self) -> None:
        sizes = [size for size, _ in self.read_bandwidth]
        if not sizes or sizes != sorted(set(sizes)):
            raise ConfigError(f"{self.name}: read bandwidth needs points of ascending working sets")
        for number in (*sizes, *(rate for _, rate in self.read_bandwidth), *self.flops.values()):
            if not (number > 0 and math.isfinite(number)):
                raise ConfigError(f"{self.name}: {number} is no working set, bandwidth or FLOP/s")

    def bytes_per_s_at(self, working_set_bytes: float) -> float:
        """Read bandwidth at a working set: linear between points over the logarithm of the set, flat beyond them."""
        points = self.read_bandwidth
        after = bisect_left(points, working_set_bytes, key=lambda point: point[0])
        if after == 0:
            return points[0][1]
        if after == len(points):
            return points[-1][1]
        (low, below), (high, above) = points[after - 1], points[after]
        share = math.log(working_set_bytes / low) / math.log(high / low)
        return below + share * (above - below)

    def flops_for(self, kind: str) -> float:
        """FLOP/s of one kind of arithmetic; raises ConfigError where it is not known."""
        if kind not in self.flops:
            raise ConfigError(f"{self.name}: no FLOP/s of {kind!r} known (known: {', '.join(self.flops) or 'none'})")
        return self.flops[kind]

    @property
    def peak_flops(self) -> float:
        """FLOP/s of the best arithmetic that linear layers can use: 16-bit, or float32 where that is faster."""
        known = [self.flops[kind] for kind in ARITHMETIC if kind in self.flops]
        if not known:
            raise ConfigError(f"{self.name}: FLOP/s of neither {' nor '.join(ARITHMETIC)} is known")
        return max(known)

    def ridge_point(self, working_set_bytes: float) -> float:
        """FLOPs per byte above which arithmetic is the limit (Williams et al. 2009)."""
        return self.peak_flops / self.bytes_per_s_at(working_set_bytes)
