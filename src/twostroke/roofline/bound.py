"""Where a phase stands under the roofs. Owns the comparison; counts and measures nothing itself."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from twostroke.roofline.hardware import HardwareSpec

Bound = Literal["compute", "memory"]


@dataclass(frozen=True, slots=True)
class Attainment:
    """What a phase reached of what it could; field names are the keys of `run --json`.

    bound          what limits it: the resource that would take longer at its roof; None when nothing ran
    roof_fraction  achieved rate of that resource over its roof; None when nothing ran
    """

    achieved_flop_s: float
    achieved_byte_s: float
    roof_flop_s: float
    roof_byte_s: float
    bound: Bound | None
    roof_fraction: float | None


def raised_to(hardware: HardwareSpec, reached: Iterable[Attainment | None]) -> HardwareSpec:
    """The same machine with roofs no lower than what was reached: that shows what the machine can do, and that a probe,
    which neighbours on the machine disturbed, did not find it."""
    byte_s, flop_s = 0.0, 0.0
    for one in reached:
        if one is not None and one.bound == "memory":
            byte_s = max(byte_s, one.achieved_byte_s)
        elif one is not None and one.bound == "compute":
            flop_s = max(flop_s, one.achieved_flop_s)
    best = max(hardware.flops, key=lambda kind: hardware.flops[kind])
    return replace(
        hardware,
        read_bandwidth=tuple((size, max(rate, byte_s)) for size, rate in hardware.read_bandwidth),
        flops={**hardware.flops, best: max(hardware.flops[best], flop_s)},
    )


def attain(
    flops: float, num_bytes: float, seconds: float, *, working_set_bytes: float, hardware: HardwareSpec
) -> Attainment:
    """Compare a phase's totals with the machine's roofs.

    `flops`, `num_bytes` and `seconds` are the phase's totals; `working_set_bytes` is what one step of it reads (for
    decode: weights and KV), which decides how much caches can help.
    """
    roof_flop_s, roof_byte_s = hardware.peak_flops, hardware.bytes_per_s_at(working_set_bytes)
    if seconds <= 0 or (flops <= 0 and num_bytes <= 0):
        return Attainment(0.0, 0.0, roof_flop_s, roof_byte_s, None, None)
    compute_seconds, memory_seconds = flops / roof_flop_s, num_bytes / roof_byte_s
    return Attainment(
        achieved_flop_s=flops / seconds,
        achieved_byte_s=num_bytes / seconds,
        roof_flop_s=roof_flop_s,
        roof_byte_s=roof_byte_s,
        bound="compute" if compute_seconds > memory_seconds else "memory",
        roof_fraction=max(compute_seconds, memory_seconds) / seconds,
    )
