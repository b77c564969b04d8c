"""Device: one machine's published facts. Owns the record and its units; entries come from `hardware_catalogue`.

A fact that nobody published is absent: None, or no key. Rates are peaks, never what anyone measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from twostroke.errors import ConfigError
from twostroke.roofline.hardware import HardwareSpec

DeviceKind = Literal["gpu", "apple", "cpu", "soc", "phone", "accelerator"]
ARITHMETIC_TYPES = ("fp32", "fp16", "bf16", "fp8", "fp4", "int8")


@dataclass(frozen=True, slots=True)
class Device:
    """Published facts of a device, of one piece; `count` pieces were asked for.

    kind          "gpu": memory of its own; "apple", "cpu", "soc", "phone": the system's memory; "accelerator": neither
    memory_bytes  of one piece, as asked for, else the most it can have; None where it is not known
    memory_sizes  every size it is sold with, in bytes, ascending; empty where memory is bought apart
    bandwidth     peak of its memory, bytes per second
    bus_bits      width of the memory's bus, where that is known
    flops         peak dense FLOP/s (int8: operations per second) by type: "fp32", "fp16", "bf16", "fp8", "fp4", "int8".
                  16-bit and 8-bit floats are with 32-bit accumulation, where a matrix unit offers a choice; no sparsity
    links         bytes per second in one direction: "pcie" to the host, "nvlink" to all other GPUs
    sources       by fact, "memory", "bandwidth", "flops", "links": where it is published
    """

    name: str
    aliases: tuple[str, ...]
    kind: DeviceKind
    memory_bytes: int | None
    memory_sizes: tuple[int, ...]
    bandwidth: float
    bus_bits: int | None
    flops: Mapping[str, float]
    links: Mapping[str, float]
    sources: Mapping[str, str]
    count: int = 1

    @property
    def has_own_memory(self) -> bool:
        """Whether its memory is apart from the host's."""
        return self.kind in ("gpu", "accelerator")

    def spec(self) -> HardwareSpec:
        """Its roofs, of one piece. Raises ConfigError where no FLOP/s are published."""
        half = max(self.flops.get("fp16", 0.0), self.flops.get("bf16", 0.0))
        known = {"f32": self.flops.get("fp32", 0.0), "16bit": half}
        flops = {kind: rate for kind, rate in known.items() if rate}
        if not flops:
            raise ConfigError(f"{self.name}: no FLOP/s are published")
        source = "; ".join(dict.fromkeys(self.sources.values()))
        size = self.memory_bytes or 1 << 30
        return HardwareSpec(self.name, ((size, self.bandwidth),), flops, self.memory_bytes, source=source)
