"""Memory available, on machines that are folders; the refusal and its sum."""

import subprocess
import sys
from pathlib import Path

import pytest

from twostroke.errors import NotEnoughMemoryError
from twostroke.roofline.memory import available_memory, check_memory, peak_rss_bytes, total_memory

GIB = 2**30


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="ascii")


def make_system(root: Path, total: int, available: int) -> None:
    write(root / "proc/meminfo", f"MemTotal: {total // 1024} kB\nMemFree: 1 kB\nMemAvailable: {available // 1024} kB")


def make_v2(root: Path, path: str, limit: str, usage: int, inactive: int = 0, mount: str = "sys/fs/cgroup") -> None:
    folder = root / mount / path.strip("/")
    write(folder / "memory.max", limit)
    write(folder / "memory.current", str(usage))
    write(folder / "memory.stat", f"anon 5\ninactive_file {inactive}\nactive_file 7")


def test_without_a_cgroup_it_is_what_the_kernel_says(tmp_path: Path) -> None:
    make_system(tmp_path, 16 * GIB, 9 * GIB)
    assert (available_memory(tmp_path), total_memory(tmp_path)) == (9 * GIB, 16 * GIB)


def test_a_v2_limit_counts_less_what_is_used(tmp_path: Path) -> None:
    make_system(tmp_path, 16 * GIB, 9 * GIB)
    write(tmp_path / "proc/self/cgroup", "0::/box")
    make_v2(tmp_path, "/box", str(4 * GIB), 3 * GIB)
    assert (available_memory(tmp_path), total_memory(tmp_path)) == (GIB, 4 * GIB)


def test_pages_the_kernel_can_drop_are_free(tmp_path: Path) -> None:
    make_system(tmp_path, 16 * GIB, 9 * GIB)
    write(tmp_path / "proc/self/cgroup", "0::/box")
    make_v2(tmp_path, "/box", str(4 * GIB), 3 * GIB, inactive=2 * GIB)
    assert available_memory(tmp_path) == 3 * GIB


def test_the_tightest_of_nested_cgroups_counts(tmp_path: Path) -> None:
    make_system(tmp_path, 16 * GIB, 9 * GIB)
    write(tmp_path / "proc/self/cgroup", "0::/a/b/c")
    make_v2(tmp_path, "/a/b/c", str(8 * GIB), GIB)
    make_v2(tmp_path, "/a/b", "max", GIB)
    make_v2(tmp_path, "/a", str(5 * GIB), 3 * GIB)
    make_v2(tmp_path, "/other", str(GIB), GIB)
    assert available_memory(tmp_path) == 2 * GIB


@pytest.mark.parametrize("mount", ["sys/fs/cgroup", "sys/fs/cgroup/unified"])
def test_a_container_sees_its_cgroup_at_the_mount_root(tmp_path: Path, mount: str) -> None:
    make_system(tmp_path, 16 * GIB, 9 * GIB)
    write(tmp_path / "proc/self/cgroup", "0::/name/on/the/host")
    make_v2(tmp_path, "/", str(2 * GIB), GIB, mount=mount)
    assert available_memory(tmp_path) == GIB


def test_a_v1_limit(tmp_path: Path) -> None:
    make_system(tmp_path, 16 * GIB, 9 * GIB)
    write(tmp_path / "proc/self/cgroup", "4:memory:/box\n3:cpu:/\n0::/")
    folder = tmp_path / "sys/fs/cgroup/memory/box"
    write(folder / "memory.limit_in_bytes", str(4 * GIB))
    write(folder / "memory.usage_in_bytes", str(3 * GIB))
    write(folder / "memory.stat", f"inactive_file 1\ntotal_inactive_file {GIB}")
    assert available_memory(tmp_path) == 2 * GIB
    write(folder / "memory.limit_in_bytes", "9223372036854771712")  # v1's way to say none
    assert (available_memory(tmp_path), total_memory(tmp_path)) == (9 * GIB, 16 * GIB)


def test_usage_above_the_limit_leaves_nothing(tmp_path: Path) -> None:
    make_system(tmp_path, 16 * GIB, 9 * GIB)
    write(tmp_path / "proc/self/cgroup", "0::/box")
    make_v2(tmp_path, "/box", str(GIB), 2 * GIB)
    assert available_memory(tmp_path) == 0


def test_a_system_without_proc_says_its_physical_memory(tmp_path: Path) -> None:
    assert available_memory(tmp_path) == total_memory(tmp_path) > 0


@pytest.mark.parametrize(("limit", "expected"), [("5368709120", 4 * GIB), ("unlimited", 9 * GIB), ("", 9 * GIB)])
def test_a_limit_of_address_space(tmp_path: Path, limit: str, expected: int) -> None:
    make_system(tmp_path, 16 * GIB, 9 * GIB)
    write(tmp_path / "proc/self/limits", f"Max data size  1  1  bytes\nMax address space  {limit}  unlimited  bytes")
    write(tmp_path / "proc/self/status", f"VmPeak: {2 * GIB // 1024} kB\nVmSize: {GIB // 1024} kB")
    assert available_memory(tmp_path) == expected


def test_what_fits_passes_and_what_does_not_is_refused_with_the_sum() -> None:
    parts = {"weights": 3 * GIB, "KV pool": 2 * GIB, "arena": 50 * 2**20}
    total = sum(parts.values())
    check_memory(parts, total)
    with pytest.raises(NotEnoughMemoryError) as raised:
        check_memory(parts, total - 1)
    message = str(raised.value)
    for piece in ("weights 3.00 GiB", "KV pool 2.00 GiB", "arena 50.0 MiB", f"({total} bytes)", f"({total - 1} bytes)"):
        assert piece in message
    assert "\n" not in message


def test_peak_rss_is_read_in_bytes(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/status", "Name: x\nVmPeak: 9 kB\nVmHWM:    2048 kB\nVmRSS: 5 kB")
    assert peak_rss_bytes(tmp_path) == 2048 * 1024
    resident = peak_rss_bytes(tmp_path / "nothing")  # getrusage
    assert 2**20 < resident < 2**44


def test_peak_rss_grows_with_what_is_touched() -> None:
    code = (
        "from twostroke.roofline.memory import peak_rss_bytes as peak\n"
        "before = peak()\ntouched = bytearray(b'x') * 2**26\nprint(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 2**25 < int(done.stdout) < 2**28
