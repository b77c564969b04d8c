"""Target: the hardware a plan is for. Owns the ways to name one: catalogue, this machine, or the user's own figures.

What a device can do is `device`'s and `probe`'s; how well engines use it is `efficiency`'s.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twostroke.errors import ConfigError, in_words
from twostroke.roofline.device import Device
from twostroke.roofline.efficiency import hardware_class
from twostroke.roofline.hardware import HardwareSpec
from twostroke.roofline.hardware_catalogue import find_hardware

_ANY_SET = 1 << 30  # one bandwidth, whatever the working set
_CUSTOM_KEYS = ("name", "memory_gib", "bandwidth_gb_s", "tflops", "kind", "link_gb_s", "storage_gb_s")


@dataclass(frozen=True, slots=True)
class Target:
    """Hardware with its roofs.

    kind          as engines tell hardware apart: "nvidia", "apple", "cpu" (see `efficiency`)
    memory_bytes  what a model may use of it; None where it is not known
    link_byte_s   from the host's memory, `storage_byte_s` from disk; None where it is not known
    count         devices of this kind that were named; a plan uses one
    is_here       it is this machine
    """

    name: str
    kind: str
    spec: HardwareSpec
    memory_bytes: int | None
    link_byte_s: float | None
    storage_byte_s: float | None
    source: str
    count: int = 1
    is_here: bool = False


def target_of(device: Device) -> Target:
    """One device of the catalogue."""
    flops = {
        "f32": device.flops.get("fp32", 0.0),
        "16bit": max(device.flops.get("fp16", 0.0), device.flops.get("bf16", 0.0)),
        "8bit": device.flops.get("int8") or device.flops.get("fp4", 0.0) / 2,  # matrix units: half of 4 bits
    }
    known = {kind: rate for kind, rate in flops.items() if rate}
    source = "; ".join(dict.fromkeys(part for text in device.sources.values() for part in text.split("; ")))
    spec = HardwareSpec(device.name, ((_ANY_SET, device.bandwidth),), known, device.memory_bytes, source=source)
    kind = hardware_class(device.name, device.kind)
    link = device.links.get("pcie")
    return Target(device.name, kind, spec, device.memory_bytes, link, None, source, count=device.count)


def find_target(name: str) -> Target:
    """A catalogue name, "this" for this machine, or a TOML file of one's own figures.

    Raises HardwareNotFoundError with the nearest names, ConfigError for a file that says something else.
    """
    if name.strip().lower() == "this":
        return this_machine()
    if name.endswith(".toml"):
        return _from_file(Path(name))
    return target_of(find_hardware(name))


def custom_target(values: Mapping[str, Any]) -> Target:
    """From a user's figures: `bandwidth_gb_s` at least, in 10^9 bytes per second; `memory_gib`, `tflops` (16-bit),
    `link_gb_s`, `storage_gb_s`, and `kind`, that of the hardware it is like."""
    for key in values:
        if key not in _CUSTOM_KEYS:
            raise ConfigError(f"hardware has no {key!r}; there are {', '.join(_CUSTOM_KEYS)}")
    bandwidth = _positive(values, "bandwidth_gb_s", 1e9)
    if bandwidth is None:
        raise ConfigError("hardware needs bandwidth_gb_s")
    flops, memory = _positive(values, "tflops", 1e12), _positive(values, "memory_gib", 2**30)
    name, kind = str(values.get("name", "custom hardware")), str(values.get("kind", "cpu"))
    spec = HardwareSpec(name, ((_ANY_SET, bandwidth),), {"16bit": flops} if flops else {}, source="as given")
    size = None if memory is None else int(memory)
    return Target(
        name, kind, spec, size, _positive(values, "link_gb_s", 1e9), _positive(values, "storage_gb_s", 1e9), "as given"
    )


def this_machine() -> Target:
    """This machine, from the roofs kept by `probe`; they are measured now where there are none (ten seconds)."""
    from twostroke.native.threads import choose_threads
    from twostroke.roofline.memory import available_memory
    from twostroke.roofline.probe import known_or_probed

    spec = known_or_probed(choose_threads(None).num_threads)
    now = spec.read_bandwidth[-1][1] / 1e9
    read = f"{now:.0f} GB/s"
    if spec.memory_span != (1.0, 1.0):
        slow, fast = (now * share for share in spec.memory_span)
        read += f", in 30 days {slow:.0f} to {fast:.0f}"
    source = f"probed {spec.probed_at}: memory read at {read}"
    return Target(spec.name, "cpu", spec, available_memory(), None, None, source, is_here=True)


def with_memory(target: Target, memory_bytes: int) -> Target:
    """The same hardware with this much memory."""
    return replace(target, memory_bytes=memory_bytes)


def _from_file(path: Path) -> Target:
    import tomllib  # only where a file is given

    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {in_words(error)}") from None
    return custom_target({"name": path.stem, **values})


def _positive(values: Mapping[str, Any], key: str, unit: float) -> float | None:
    if values.get(key) is None:
        return None
    value = values[key]
    if not isinstance(value, int | float) or isinstance(value, bool) or not (0 < value < math.inf):
        raise ConfigError(f"hardware: {key} is a number above 0, not {value!r}")
    return float(value) * unit
