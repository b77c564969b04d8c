"""Memory: how much this process may still take, how much it took at most, and the refusal when a sum does not fit.

Reads what the system says; allocates nothing. `root` is where /proc and /sys are.
"""

import os
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from twostroke.errors import NotEnoughMemoryError


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that can be allocated now without swapping: the least of the system's, of every cgroup's above us, and of
    the address space that `ulimit -v` leaves.

    What a cgroup's usage holds of file pages not in active use counts as free, as the kernel reclaims it first.
    """
    system = _kib(root / "proc/meminfo", "MemAvailable")
    free = [_physical() if system is None else system, *(limit - used for limit, used in _limits(root))]
    return max(0, min(free))


def total_memory(root: Path = Path("/")) -> int:
    """Bytes this process could have at most: the machine's memory, or the tightest limit."""
    total = _kib(root / "proc/meminfo", "MemTotal") or _physical()
    return min([total, *(limit for limit, _ in _limits(root))])


def peak_rss_bytes(root: Path = Path("/")) -> int:
    """The most memory this process had resident so far, in bytes."""
    if (known := _kib(root / "proc/self/status", "VmHWM")) is not None:
        return known
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, everyone else KiB


def resident_bytes(root: Path = Path("/")) -> tuple[int, int] | None:
    """Bytes resident now that are private to this process, and those of files, which the kernel can drop and read
    again; None where the system does not tell them apart."""
    private, of_files = (_kib(root / "proc/self/status", name) for name in ("RssAnon", "RssFile"))
    return None if private is None or of_files is None else (private, of_files)


def check_memory(parts: Mapping[str, int], available: int) -> None:
    """Raises NotEnoughMemoryError, with every part and the sum, when the parts exceed `available` bytes together."""
    total = sum(parts.values())
    if total > available:
        terms = " + ".join(f"{name} {_size(part)}" for name, part in parts.items())
        raise NotEnoughMemoryError(
            f"not enough memory: {terms} = {_size(total)} ({total} bytes), available are {_size(available)}"
            f" ({available} bytes)"
        )


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.1f} MiB"


def _physical() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _kib(path: Path, key: str) -> int | None:
    """Bytes that a line "key: N kB" states; None where there is none."""
    for line in _read(path).splitlines():
        name, _, value = line.partition(":")
        if name == key and (kib := value.split()[:1]) and kib[0].isdecimal():
            return int(kib[0]) * 1024
    return None


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, bytes in use) of everything that bounds this process."""
    yield from _cgroups(root)
    for line in _read(root / "proc/self/limits").splitlines():
        soft = line.removeprefix("Max address space").split()[:1]
        if line.startswith("Max address space") and soft and soft[0].isdecimal():  # "unlimited" is no limit
            yield int(soft[0]), _kib(root / "proc/self/status", "VmSize") or 0


# --- cgroups ----------------------------------------------------------------------------------------------------------


def _cgroups(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, bytes in use) of this process's memory cgroup and of each above it that has a limit.

    In a container the path that /proc names may be the host's and not be visible; the mount's root then is the
    container's own cgroup.
    """
    mounts = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        parts = [part for part in path.split("/") if part not in ("", "..")]
        lineage = [parts[:depth] for depth in range(len(parts), -1, -1)]
        if hierarchy == "0" and not controllers:
            for mount in (mounts, mounts / "unified"):
                for names in lineage:
                    folder = mount.joinpath(*names)
                    yield from _usage(folder, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            for names in lineage:
                folder = (mounts / "memory").joinpath(*names)
                yield from _usage(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _usage(folder: Path, limit_file: str, usage_file: str, reclaimable_key: str) -> Iterator[tuple[int, int]]:
    limit, usage = _read(folder / limit_file), _read(folder / usage_file)
    if limit.isdecimal() and usage.isdecimal():  # "max" is no limit
        stat = dict(line.split()[:2] for line in _read(folder / "memory.stat").splitlines() if len(line.split()) == 2)
        reclaimable = stat.get(reclaimable_key, "0")
        yield int(limit), max(0, int(usage) - (int(reclaimable) if reclaimable.isdecimal() else 0))


def _read(path: Path) -> str:
    """The file's text without surrounding space; empty when it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
