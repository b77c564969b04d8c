"""The CPU's name and caches, from folders."""

from pathlib import Path

from twostroke.roofline.machine import cache_bytes, cpu_model


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def make_cache(root: Path, cpu: int, index: int, level: int, size: str, shared: str, kind: str = "Unified") -> None:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
    for name, text in (("level", str(level)), ("size", size), ("shared_cpu_list", shared), ("type", kind)):
        write(folder / name, text)


def test_cpu_model(tmp_path: Path) -> None:
    assert cpu_model(tmp_path)
    write(tmp_path / "proc/cpuinfo", "processor : 0\nmodel\t\t: 17\nmodel name\t: Some  CPU @ 3 GHz\n\nprocessor : 1")
    assert cpu_model(tmp_path) == "Some CPU @ 3 GHz"


def test_shared_caches_count_once_and_instructions_never(tmp_path: Path) -> None:
    for cpu in range(4):
        make_cache(tmp_path, cpu, 0, 1, "32K", str(cpu), "Data")
        make_cache(tmp_path, cpu, 1, 1, "64K", str(cpu), "Instruction")
        make_cache(tmp_path, cpu, 2, 2, "1024K", str(cpu))
        make_cache(tmp_path, cpu, 3, 3, "32M", "0-1" if cpu < 2 else "2-3")
    assert [cache_bytes(level, range(4), tmp_path) for level in (1, 2, 3)] == [2**17, 2**22, 2**26]
    assert cache_bytes(3, (0, 1), tmp_path) == 2**25


def test_unknown_caches_are_zero(tmp_path: Path) -> None:
    assert cache_bytes(3, (0, 1), tmp_path) == 0
    make_cache(tmp_path, 0, 0, 3, "big", "0")
    assert cache_bytes(3, (0,), tmp_path) == 0
