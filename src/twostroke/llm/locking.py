"""Locking this process's memory, so that no page of the model is written out or dropped. Owns the system's limit and
what it is refused with.

Locked is what the process has mapped when the model is loaded, each page once it is used. It stays so until it is
freed.
"""

import ctypes
import os
import resource
from pathlib import Path

from twostroke.errors import ConfigError

_CURRENT, _ON_FAULT = 1, 4  # MCL_CURRENT, MCL_ONFAULT of Linux
_IPC_LOCK = 14  # the capability that no limit holds for


def check_lockable(num_bytes: int, root: Path = Path("/")) -> None:
    """Raises ConfigError, with both numbers, where locking `num_bytes` more than is mapped now exceeds the limit.

    The limit is raised as far as the system lets this process raise it.
    """
    limit, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != most:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, most))
    status = _status(root)
    may_all = int(status.get("CapEff", "0"), 16) >> _IPC_LOCK & 1
    needed = int(status.get("VmSize", "0 kB").split()[0]) * 1024 + num_bytes
    if most != resource.RLIM_INFINITY and not may_all and needed > most:
        raise ConfigError(f"mlock: {needed:,} bytes would be locked, but the limit is {most:,} bytes (`ulimit -l`)")


def lock_memory() -> None:
    """Locks all that is mapped. Raises ConfigError where the system refuses or cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "mlockall") or not Path("/proc/self/status").exists():
        raise ConfigError("mlock: this system cannot lock memory page by page")
    if libc.mlockall(_CURRENT | _ON_FAULT) != 0:
        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        reason = os.strerror(ctypes.get_errno())
        raise ConfigError(f"mlock: {reason}; the limit is {limit:,} bytes (`ulimit -l`)")


def locked_bytes(root: Path = Path("/")) -> int:
    """Bytes of this process that are locked."""
    return int(_status(root).get("VmLck", "0 kB").split()[0]) * 1024


def _status(root: Path) -> dict[str, str]:
    try:
        lines = (root / "proc/self/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
