"""The choice of threads, on machines that are folders: fake /sys and /proc trees under a temporary root."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from twostroke.errors import ConfigError
from twostroke.native import threads
from twostroke.native.threads import ThreadChoice, choose_threads


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="ascii")


def make_topology(root: Path, cores: Sequence[Sequence[int]], name: str = "core_cpus_list") -> None:
    """Writes one `topology` folder a logical CPU; each inner sequence is one physical core."""
    for core in cores:
        for cpu in core:
            write(root / f"sys/devices/system/cpu/cpu{cpu}/topology/{name}", ",".join(map(str, core)))


def make_v2(root: Path, path: str, limits: dict[str, str], mount: str = "sys/fs/cgroup") -> None:
    """This process sits in the v2 cgroup `path`; `limits` maps cgroup paths to the text of their cpu.max."""
    write(root / "proc/self/cgroup", f"0::{path}")
    for cgroup, text in limits.items():
        write(root / mount / cgroup.strip("/") / "cpu.max", text)


def make_v1(root: Path, path: str, quota: str, folder: str) -> None:
    write(root / "proc/self/cgroup", f"4:memory:/other\n3:cpu,cpuacct:{path}\n2:cpuset:/")
    write(root / folder / "cpu.cfs_quota_us", quota)
    write(root / folder / "cpu.cfs_period_us", "100000")


EIGHT_CORES = [[cpu] for cpu in range(8)]
FOUR_CORES_OF_TWO = [[cpu, cpu + 4] for cpu in range(4)]


def test_one_thread_a_core_without_any_limit(tmp_path: Path) -> None:
    make_topology(tmp_path, EIGHT_CORES)
    choice = choose_threads(affinity=range(8), root=tmp_path)
    assert choice == ThreadChoice(8, tuple(range(8)), choice.reason)
    assert choice.reason == "8 threads: one a physical core (8 CPUs allowed, 8 physical cores)"


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
def test_hyper_threads_share_a_core(tmp_path: Path, name: str) -> None:
    make_topology(tmp_path, FOUR_CORES_OF_TWO, name)
    choice = choose_threads(affinity=range(8), root=tmp_path)
    assert (choice.num_threads, choice.cpus) == (4, (0, 1, 2, 3))
    assert "8 CPUs allowed, 4 physical cores" in choice.reason


def test_sibling_ranges_are_understood(tmp_path: Path) -> None:
    for cpu in range(4):
        siblings = "0-1" if cpu < 2 else "2-3"
        write(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", siblings)
    assert choose_threads(affinity=range(4), root=tmp_path).cpus == (0, 2)


def test_affinity_limits_which_cores(tmp_path: Path) -> None:
    make_topology(tmp_path, EIGHT_CORES)
    assert choose_threads(affinity={2, 3, 6, 7}, root=tmp_path).cpus == (2, 3, 6, 7)
    make_topology(tmp_path, FOUR_CORES_OF_TWO)
    choice = choose_threads(affinity={0, 1, 4, 5}, root=tmp_path)  # two cores, both threads of each
    assert (choice.num_threads, choice.cpus) == (2, (0, 1))


def test_quota_of_four_on_eight_cores(tmp_path: Path) -> None:
    make_topology(tmp_path, EIGHT_CORES)
    make_v2(tmp_path, "/box", {"/box": "400000 100000"})
    choice = choose_threads(affinity=range(8), root=tmp_path)
    assert (choice.num_threads, choice.cpus) == (4, (0, 1, 2, 3))
    assert choice.reason == "4 threads: the cgroup quota (8 CPUs allowed, 8 physical cores, cgroup quota 4 CPUs)"


def test_quota_above_the_cores_does_not_raise_the_number(tmp_path: Path) -> None:
    make_topology(tmp_path, FOUR_CORES_OF_TWO)
    make_v2(tmp_path, "/box", {"/box": "600000 100000"})
    choice = choose_threads(affinity=range(8), root=tmp_path)
    assert choice.num_threads == 4
    assert "one a physical core" in choice.reason


@pytest.mark.parametrize(
    ("quota", "expected", "why"),
    [("150000 100000", 1, "rounded down"), ("290000 100000", 2, "rounded down"), ("25000 100000", 1, "below one CPU")],
)
def test_fractional_quota_is_rounded_down_to_one_at_least(tmp_path: Path, quota: str, expected: int, why: str) -> None:
    make_topology(tmp_path, EIGHT_CORES)
    make_v2(tmp_path, "/box", {"/box": quota})
    choice = choose_threads(affinity=range(8), root=tmp_path)
    assert choice.num_threads == expected
    assert why in choice.reason


def test_the_tightest_of_nested_cgroups_counts(tmp_path: Path) -> None:
    make_topology(tmp_path, EIGHT_CORES)
    make_v2(tmp_path, "/a/b/c", {"/a": "300000 100000", "/a/b": "max 100000", "/a/b/c": "500000 100000"})
    assert choose_threads(affinity=range(8), root=tmp_path).num_threads == 3


def test_a_sibling_cgroup_does_not_count(tmp_path: Path) -> None:
    make_topology(tmp_path, EIGHT_CORES)
    make_v2(tmp_path, "/a/b", {"/a/b": "max 100000", "/a/other": "100000 100000"})
    assert choose_threads(affinity=range(8), root=tmp_path).num_threads == 8


def test_a_container_sees_its_cgroup_at_the_mount_root(tmp_path: Path) -> None:
    make_topology(tmp_path, EIGHT_CORES)
    make_v2(tmp_path, "/host/only/name", {"/": "200000 100000"})
    assert choose_threads(affinity=range(8), root=tmp_path).num_threads == 2


@pytest.mark.parametrize(
    "folder",
    ["sys/fs/cgroup/cpu,cpuacct/box", "sys/fs/cgroup/cpu/box", "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpu"],
)
def test_cgroup_v1_quota(tmp_path: Path, folder: str) -> None:
    make_topology(tmp_path, EIGHT_CORES)
    make_v1(tmp_path, "/box", "300000", folder)
    assert choose_threads(affinity=range(8), root=tmp_path).num_threads == 3


def test_cgroup_v1_without_a_limit(tmp_path: Path) -> None:
    make_topology(tmp_path, EIGHT_CORES)
    make_v1(tmp_path, "/box", "-1", "sys/fs/cgroup/cpu/box")
    assert choose_threads(affinity=range(8), root=tmp_path).num_threads == 8


def test_hybrid_mount_is_read_too(tmp_path: Path) -> None:
    make_topology(tmp_path, EIGHT_CORES)
    make_v2(tmp_path, "/box", {"/box": "500000 100000"}, mount="sys/fs/cgroup/unified")
    assert choose_threads(affinity=range(8), root=tmp_path).num_threads == 5


@pytest.mark.parametrize("text", ["", "max 100000", "400000", "nonsense here", "400000 0", "0 100000"])
def test_an_unreadable_quota_is_no_quota(tmp_path: Path, text: str) -> None:
    make_topology(tmp_path, EIGHT_CORES)
    make_v2(tmp_path, "/box", {"/box": text})
    assert choose_threads(affinity=range(8), root=tmp_path).num_threads == 8


def test_without_any_files_every_cpu_is_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert choose_threads(root=tmp_path).cpus == (0, 1, 2, 3, 4, 5)


def test_a_system_that_counts_no_cpu_gets_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert choose_threads(root=tmp_path).num_threads == 1


def test_default_affinity_is_the_process_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5}, raising=False)
    assert choose_threads(root=tmp_path).cpus == (3, 5)


def test_a_requested_number_uses_second_hyper_threads_last(tmp_path: Path) -> None:
    make_topology(tmp_path, FOUR_CORES_OF_TWO)
    choice = choose_threads(6, affinity=range(8), root=tmp_path)
    assert (choice.num_threads, choice.cpus) == (6, (0, 1, 2, 3, 4, 5))
    assert "as requested, more than one a physical core" in choice.reason


def test_a_request_above_the_quota_is_obeyed_and_said(tmp_path: Path) -> None:
    make_topology(tmp_path, EIGHT_CORES)
    make_v2(tmp_path, "/box", {"/box": "150000 100000"})
    choice = choose_threads(2, affinity=range(8), root=tmp_path)
    assert choice.num_threads == 2
    assert choice.reason.startswith("2 threads: as requested, above the cgroup quota: expect throttling")
    assert "cgroup quota 1.5 CPUs" in choice.reason


def test_more_threads_than_cpus_share_them(tmp_path: Path) -> None:
    choice = choose_threads(3, affinity={0, 1}, root=tmp_path)
    assert (choice.num_threads, choice.cpus) == (3, (0, 1))
    assert "more than the CPUs allowed" in choice.reason


@pytest.mark.parametrize("requested", [0, -1, 9, 1_000_000])
def test_a_request_out_of_range_names_both_numbers(tmp_path: Path, requested: int) -> None:
    with pytest.raises(ConfigError, match=rf"^threads: {requested} is outside 1\.\.8 \(2 CPUs allowed\)$"):
        choose_threads(requested, affinity={0, 1}, root=tmp_path)


def test_reasons_are_one_line(tmp_path: Path) -> None:
    make_v2(tmp_path, "/box", {"/box": "150000 100000"})
    for requested in (None, 1, 2, 8):
        reason = choose_threads(requested, affinity={0, 1}, root=tmp_path).reason
        assert "\n" not in reason
        assert reason.startswith(f"{requested or 1} thread")


@pytest.mark.skipif(not Path("/proc/self/cgroup").exists(), reason="needs Linux's /proc")
def test_this_machine_gets_a_choice_within_its_affinity() -> None:
    allowed = threads._process_affinity()
    choice = choose_threads()
    assert 1 <= choice.num_threads == len(choice.cpus) <= len(allowed)
    assert set(choice.cpus) <= allowed
