"""The hardware catalogue, `hardware.toml`: devices by name. Owns the file's form and how a device is looked up.

Derived facts are computed from what vendors state: FLOP/s as units x clock x FLOPs per clock of the architecture,
bandwidth as bus width x transfer rate, links as lanes x rate. Measures nothing: this machine is `probe`'s.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from twostroke.errors import HardwareNotFoundError
from twostroke.roofline.device import ARITHMETIC_TYPES, Device
from twostroke.roofline.nearest import folded, suggestion

_PATH = Path(__file__).with_name("hardware.toml")
# Gigatransfers per second and lane by PCIe generation, 128 of 130 bits payload. Source: PCI-SIG base specifications.
_PCIE_GT_S = {"3": 8.0, "4": 16.0, "5": 32.0}
_FACTS = ("memory", "bandwidth", "flops", "links")
_KEYS = {
    "aliases",
    "kind",
    "memory_gib",
    "memory_max_gib",
    "bandwidth_gb_s",
    "bus",
    "compute",
    "tflops",
    "links",
    "source",
}
_MEMORY = r"(\d+) ?gi?b\b"
_RATE = r"\b(?:lp)?ddr\d\w?(?:-(\d{3,5}))?\b"
# What names carry or lack without meaning another device.
_NOISE = r"\b(nvidia|geforce|gtx|rtx|amd|radeon|rx|apple|intel|gpu|dual channel|\d+ch)\b"


def load_hardware(path: Path = _PATH) -> dict[str, Device]:
    """All devices by name, in the file's order."""
    import tomllib  # only needed once the catalogue is

    table = tomllib.loads(path.read_text("utf-8"))
    architectures, sources = table["architectures"], table["sources"]
    return {name: _device(name, row, architectures, sources) for name, row in table["devices"].items()}


def find_hardware(name: str, devices: Mapping[str, Device] | None = None) -> Device:
    """The device that a name or an alias means, however spelt.

    In it, "64GB" chooses the memory, "DDR5-6400" its rate where the bus is known, "x4" a count. Of "host (device)" it
    is the device. Raises HardwareNotFoundError with the nearest names, or with the sizes that there are.
    """
    devices = load_hardware() if devices is None else devices
    text, count = _counted(name.strip())
    inside, before = re.search(r"\(([^()]+)", text), text.partition("(")[0]
    for part in (text, inside[1] if inside else "", before):
        if candidates := _candidates(part.lower(), devices):
            return replace(_as_asked(part.lower(), candidates), count=count)
    raise HardwareNotFoundError(f"no hardware {name[:80]!r} in the catalogue{suggestion(name, _names(devices))}")


def _counted(name: str) -> tuple[str, int]:
    """The name without a count of devices, and that count: "x4" at the end or "4x" at the start."""
    if after := re.fullmatch(r"(.+?) ?[x×](\d{1,3})", name):
        return after[1], max(1, int(after[2]))
    if before := re.fullmatch(r"(\d{1,3}) ?[x×] ?(.+)", name):
        return before[2], max(1, int(before[1]))
    return name, 1


def _candidates(name: str, devices: Mapping[str, Device]) -> list[Device]:
    """Devices of that name, else of the name without memory size and rate; those called so before mere aliases."""
    for wanted in (_form(name), _form(re.sub(f"{_MEMORY}|{_RATE}", "", name))):
        found = [each for each in devices.values() if wanted in map(_form, (each.name, *each.aliases))]
        if wanted and found:
            return sorted(found, key=lambda each: _form(each.name) != wanted)
    return []


def _as_asked(name: str, candidates: Sequence[Device]) -> Device:
    """The first candidate with the memory in the name, with that memory and its rate."""
    asked = re.search(_MEMORY, name)
    found = candidates[0]
    if asked:
        size = int(asked[1]) << 30
        fitting = [each for each in candidates if _can_have(each, size)]
        if not fitting:
            raise HardwareNotFoundError(f"{found.name} {_memories(candidates)}, not {asked[1]} GB")
        found = replace(fitting[0], memory_bytes=size)
    rate = re.search(_RATE, name)
    if rate and rate[1] and found.bus_bits:
        found = replace(found, bandwidth=found.bus_bits / 8 * int(rate[1]) * 1e6)
    return found


def _can_have(device: Device, size: int) -> bool:
    if not device.memory_sizes:
        return device.memory_bytes is None or 0 < size <= device.memory_bytes
    return size in device.memory_sizes


def _memories(candidates: Sequence[Device]) -> str:
    sizes = sorted({size >> 30 for each in candidates for size in each.memory_sizes})
    if sizes:
        return f"comes with {', '.join(map(str, sizes))} GB of memory"
    return f"takes up to {max(each.memory_bytes or 0 for each in candidates) >> 30} GB of memory"


@lru_cache(4096)
def _form(name: str) -> str:
    """The name in its common form: no vendor, "(40-core GPU)" as "40c"."""
    words = re.sub(_NOISE, " ", name.lower())
    return folded(re.sub(r"(\d+)[- ]*c(ores?)?\b", r"\1c", words))


def _names(devices: Mapping[str, Device]) -> list[str]:
    return [name for each in devices.values() for name in (each.name, *each.aliases)]


# --- one entry --------------------------------------------------------------------------------------------------------


def _device(name: str, row: Mapping[str, Any], architectures: Mapping[str, Any], sources: Mapping[str, str]) -> Device:
    if unknown := sorted(set(row) - _KEYS):
        raise ValueError(f"{name}: unknown key {unknown[0]!r}")
    given = row.get("memory_gib", [])
    sizes = tuple(int(size * 2**30) for size in (given if isinstance(given, list) else [given]))
    return Device(
        name,
        tuple(row.get("aliases", ())),
        row["kind"],
        max(sizes) if sizes else _gib(row.get("memory_max_gib")),
        tuple(sorted(sizes)),
        _bandwidth(row),
        row["bus"]["bits"] if "bus" in row else None,
        _flops(row, architectures),
        {link: _link(rate) for link, rate in row.get("links", {}).items()},
        _sources(row, architectures, sources),
    )


def _gib(size: float | None) -> int | None:
    return None if size is None else int(size * 2**30)


def _bandwidth(row: Mapping[str, Any]) -> float:
    if "bandwidth_gb_s" in row:
        return float(row["bandwidth_gb_s"]) * 1e9
    return float(row["bus"]["bits"] / 8 * row["bus"]["mt_s"] * 1e6)


def _flops(row: Mapping[str, Any], architectures: Mapping[str, Any]) -> dict[str, float]:
    """By type that every group of units has."""
    rates: dict[str, float] = {}
    for kind in ARITHMETIC_TYPES:
        if kind in row.get("tflops", {}):
            rates[kind] = row["tflops"][kind] * 1e12
        elif (groups := _groups(row)) and all(kind in architectures[group["of"]] for group in groups):
            rates[kind] = sum(architectures[each["of"]][kind] * each["units"] * each["ghz"] * 1e9 for each in groups)
    return rates


def _groups(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    compute = row.get("compute", [])
    return compute if isinstance(compute, list) else [compute]


def _link(rate: float | str) -> float:
    """Gigabytes per second, or PCIe as "4.0 x16"."""
    if isinstance(rate, str):
        generation, lanes = rate.split(".0 x")
        return _PCIE_GT_S[generation] * int(lanes) / 8 * 128 / 130 * 1e9
    return rate * 1e9


def _sources(row: Mapping[str, Any], architectures: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, str]:
    """By fact that the entry has, the texts of its sources; those of a computed rate name the architecture's too."""
    keys = {"memory": ("memory_gib", "memory_max_gib"), "bandwidth": ("bandwidth_gb_s", "bus"), "links": ("links",)}
    keys["flops"] = ("compute", "tflops")
    cited = row["source"]
    texts: dict[str, str] = {}
    for fact in _FACTS:
        if any(key in row for key in keys[fact]):
            names = [cited if isinstance(cited, str) else cited[fact]]
            if fact == "flops":
                names += [architectures[group["of"]]["source"] for group in _groups(row)]
            texts[fact] = "; ".join(dict.fromkeys(sources[name] for name in names))
    return texts
