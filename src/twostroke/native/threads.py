"""How many threads compute, and on which CPUs. Owns reading what the machine allows: affinity, cgroup quota, topology.

Starts no thread and sets no affinity (the compiled core does both), and does not rank cores by speed: on a machine with
fast and slow cores all of them count.

Decode is limited by memory and prefill by the vector units, which hyper-threads share, so one thread a physical core is
the most that helps. Under a quota of q CPUs more than floor(q) busy threads would be stopped by the kernel within each
period, and every step waits for its slowest thread.
"""

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from twostroke.errors import ConfigError

OVERSUBSCRIPTION_LIMIT = 4  # more threads than this for each CPU is a mistake, not a wish


class ThreadChoice(NamedTuple):
    """The threads to start, the CPUs they may use, and why.

    `cpus` holds distinct logical CPU ids, the first of each physical core before any second one; it is shorter than
    `num_threads` only when more threads were asked for than there are CPUs. `reason` is one line.
    """

    num_threads: int
    cpus: tuple[int, ...]
    reason: str


def choose_threads(
    requested: int | None = None, *, affinity: Iterable[int] | None = None, root: Path = Path("/")
) -> ThreadChoice:
    """Chooses the number of threads: as asked, else the least of physical cores allowed and the floor of the quota.

    `requested` is the user's number, `affinity` the logical CPUs this process may use (default: what the system says),
    `root` where /sys and /proc are. A requested number above the quota is obeyed, and the reason says so.

    Raises ConfigError when `requested` is below 1 or above four for each allowed CPU.
    """
    allowed = sorted(_process_affinity() if affinity is None else affinity)
    cores = _group_by_core(allowed, root)
    quota = _cgroup_quota(root)
    order = tuple(cpu for rank in _ranks(cores) for cpu in rank)
    if requested is None:
        num_threads = len(cores) if quota is None else min(len(cores), max(1, math.floor(quota)))
    else:
        limit = OVERSUBSCRIPTION_LIMIT * len(allowed)
        if not 1 <= requested <= limit:
            raise ConfigError(f"threads: {requested} is outside 1..{limit} ({_count(len(allowed), 'CPU')} allowed)")
        num_threads = requested
    reason = _reason(num_threads, requested is not None, len(allowed), len(cores), quota)
    return ThreadChoice(num_threads, order[:num_threads], reason)


def _reason(num_threads: int, is_requested: bool, num_cpus: int, num_cores: int, quota: float | None) -> str:
    """One line: the number, where it comes from, and everything that bounds it."""
    facts = [_count(num_cpus, "CPU") + " allowed", _count(num_cores, "physical core")]
    if quota is not None:
        facts.append(f"cgroup quota {quota:g} CPUs")
    if is_requested:
        source = "as requested"
        if quota is not None and num_threads > quota:
            source += ", above the cgroup quota: expect throttling"
        elif num_threads > num_cpus:
            source += ", more than the CPUs allowed: expect slow steps"
        elif num_threads > num_cores:
            source += ", more than one a physical core"
    elif quota is None or num_cores <= math.floor(quota):
        source = "one a physical core"
    elif quota < 1:
        source = "the least possible; the cgroup quota is below one CPU"
    else:
        source = "the cgroup quota" if quota == math.floor(quota) else "the cgroup quota rounded down"
    return f"{_count(num_threads, 'thread')}: {source} ({', '.join(facts)})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# --- CPUs and cores ---------------------------------------------------------------------------------------------------


def _process_affinity() -> set[int]:
    """The logical CPUs this process may run on; where the system cannot say, all of them."""
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # macOS
        return set(range(os.cpu_count() or 1))


def _group_by_core(allowed: list[int], root: Path) -> list[list[int]]:
    """Allowed logical CPUs grouped by physical core, in order of each core's first; without topology, one each."""
    cores: dict[tuple[int, ...], list[int]] = {}
    for cpu in allowed:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        text = _read(topology / "core_cpus_list") or _read(topology / "thread_siblings_list")
        cores.setdefault(_parse_cpu_list(text) or (cpu,), []).append(cpu)
    return list(cores.values())


def _ranks(cores: list[list[int]]) -> Iterator[list[int]]:
    """The first CPU of every core, then the second of every core that has one, and so on."""
    for rank in range(max(len(core) for core in cores)):
        yield [core[rank] for core in cores if rank < len(core)]


def _parse_cpu_list(text: str) -> tuple[int, ...]:
    """The kernel's list form, as in "0,4" or "0-1,8": its ids; empty for anything else."""
    ids: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            return ()
        ids.extend(range(int(first), int(last or first) + 1))
    return tuple(ids)


# --- cgroup quota -----------------------------------------------------------------------------------------------------


def _cgroup_quota(root: Path) -> float | None:
    """The least CPU quota, in CPUs, of this process's cgroup and all above it; None when nothing limits it.

    Reads cgroup v2's cpu.max and v1's cpu.cfs_quota_us, as /proc/self/cgroup names them. In a container the named path
    may be the host's and not be visible; the mount's own root, which is then the container's cgroup, still is.
    """
    quotas: list[float] = []
    mounts = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            for mount in (mounts, mounts / "unified"):
                quotas += filter(None, (_quota_v2(folder) for folder in _lineage(mount, path)))
        elif "cpu" in controllers.split(","):
            for mount in (mounts / controllers, mounts / "cpu"):
                quotas += filter(None, (_quota_v1(folder) for folder in _lineage(mount, path)))
    return min(quotas, default=None)


def _lineage(mount: Path, path: str) -> Iterator[Path]:
    """The folder of the cgroup `path` under `mount` and of every cgroup above it, the mount's root last."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:depth])


def _quota_v2(folder: Path) -> float | None:
    """`cpu.max` holds "QUOTA PERIOD" in microseconds, or "max PERIOD"."""
    quota, _, period = _read(folder / "cpu.max").partition(" ")
    return _ratio(quota, period)


def _quota_v1(folder: Path) -> float | None:
    """`cpu.cfs_quota_us` holds -1 where there is no limit."""
    return _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float | None:
    if not (quota.isdecimal() and period.isdecimal() and int(period) > 0 and int(quota) > 0):
        return None
    return int(quota) / int(period)


def _read(path: Path) -> str:
    """The file's text without surrounding space; empty when it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
