"""What this machine calls itself: CPU model and cache sizes. Reads only; `root` is where /proc and /sys are."""

import platform
from collections.abc import Iterable
from pathlib import Path


def cpu_model(root: Path = Path("/")) -> str:
    """The CPU's name as the system gives it, else the architecture's."""
    for line in _read(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name" and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown CPU"


def cache_bytes(level: int, cpus: Iterable[int], root: Path = Path("/")) -> int:
    """Bytes of the data caches of one level that these logical CPUs have, shared ones once; 0 where not known."""
    sizes: dict[str, int] = {}
    for cpu in cpus:
        for folder in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            if _read(folder / "level") == str(level) and _read(folder / "type") != "Instruction":
                sizes[_read(folder / "shared_cpu_list") or str(cpu)] = _size(_read(folder / "size"))
    return sum(sizes.values())


def _size(text: str) -> int:
    """The kernel's form, "2048K" or "32M"; 0 for anything else."""
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 0)
    return int(text[:-1]) * unit if text[:-1].isdecimal() else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
