"""The disk tier: what was put comes back bit for bit or not at all, within its size, also after a restart."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from twostroke.errors import ConfigError
from twostroke.kvcache.chain import BlockChain, BlockKey
from twostroke.kvcache.disk import DiskTier

BYTES = 1000
FILE_BYTES = 24 + 68 + BYTES


def keys(count: int, salt: str = "") -> list[BlockKey]:
    chain = BlockChain(16, (salt,))
    chain.extend(np.arange(16 * count, dtype=np.int32), 16 * count)
    return chain.keys


def data(index: int) -> np.ndarray:
    return np.random.default_rng(index).integers(0, 256, BYTES, np.uint8)


def filled(directory: Path, count: int, max_bytes: int = 10**6) -> list[BlockKey]:
    tier = DiskTier(directory, max_bytes, BYTES)
    for index, key in enumerate(names := keys(count)):
        tier.put(key, data(index), wait=True)
    tier.close()
    return names


def test_blocks_come_back_at_once_and_after_a_restart(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "new" / "kv", 10**6, BYTES)
    names = keys(5)
    for index, key in enumerate(names):
        tier.put(key, data(index), wait=True)
        np.testing.assert_array_equal(tier.get(key), data(index))  # written or not
    tier.close()
    again = DiskTier(tmp_path / "new" / "kv", 10**6, BYTES)
    for index, key in enumerate(names):
        np.testing.assert_array_equal(again.get(key), data(index))
    assert again.num_bytes == 5 * FILE_BYTES and again.get(keys(1, "other")[0]) is None
    again.close()


@pytest.mark.parametrize("at", [0, 9, 15, 23, 24, 60, 91, 92, 600, FILE_BYTES - 1])
def test_a_changed_byte_is_a_miss_and_the_file_goes(tmp_path: Path, at: int) -> None:
    (key,) = filled(tmp_path, 1)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    tier = DiskTier(tmp_path, 10**6, BYTES)
    assert tier.get(key) is None and not path.exists() and tier.num_bytes == 0 and not tier.has(key)
    tier.put(key, data(0), wait=True)
    np.testing.assert_array_equal(tier.get(key), data(0))
    tier.close()


@pytest.mark.parametrize("size", [0, 10, 24, FILE_BYTES - 1, FILE_BYTES + 1, 10 * FILE_BYTES])
def test_a_file_of_another_size_is_a_miss(tmp_path: Path, size: int) -> None:
    (key,) = filled(tmp_path, 1)
    (path,) = tmp_path.iterdir()
    path.write_bytes((path.read_bytes() * 10)[:size])
    tier = DiskTier(tmp_path, 10**6, BYTES)
    assert tier.get(key) is None and not path.exists()
    tier.close()


def test_a_whole_file_under_another_name_is_a_miss(tmp_path: Path) -> None:
    first, second = filled(tmp_path, 2)
    (tmp_path / f"{first.digest.hex()}.kv").replace(tmp_path / f"{second.digest.hex()}.kv")
    tier = DiskTier(tmp_path, 10**6, BYTES)
    assert tier.get(first) is None and tier.get(second) is None
    tier.close()


def test_files_that_vanish_are_a_miss(tmp_path: Path) -> None:
    names = filled(tmp_path, 2)
    tier = DiskTier(tmp_path, 10**6, BYTES)
    (tmp_path / f"{names[0].digest.hex()}.kv").unlink()
    assert tier.get(names[0]) is None and tier.get(names[1]) is not None and tier.num_bytes == FILE_BYTES
    tier.close()


def test_the_oldest_used_give_way(tmp_path: Path) -> None:
    names = filled(tmp_path, 4)
    for age, key in enumerate(reversed(names)):  # the last was used longest ago
        os.utime(tmp_path / f"{key.digest.hex()}.kv", (1000 + age, 1000 + age))
    tier = DiskTier(tmp_path, 4 * FILE_BYTES + 10, BYTES)
    assert tier.get(names[3]) is not None
    new = keys(2, "new")
    for key in new:
        tier.put(key, data(9), wait=True)
    tier.close()
    assert [tier.has(key) for key in names] == [True, False, False, True]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == tier.num_bytes == 4 * FILE_BYTES


def test_a_size_below_one_block_keeps_none(tmp_path: Path) -> None:
    filled(tmp_path, 3, max_bytes=FILE_BYTES - 1)
    assert list(tmp_path.iterdir()) == []


def test_what_was_half_written_is_cleared_and_other_files_are_left(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    (tmp_path / "ab.part").write_bytes(b"half")
    (tmp_path / "notes.txt").write_bytes(b"mine")
    tier = DiskTier(tmp_path, 10**6, BYTES)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".kv", ".txt"] and tier.num_bytes == FILE_BYTES
    tier.close()


def test_a_slow_disk_drops_blocks_instead_of_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(DiskTier, "_write", lambda *_: gate.wait())
    tier = DiskTier(tmp_path, 10**6, BYTES)
    names = keys(100)
    for key in names:
        tier.put(key, data(0))
    assert 64 <= sum(tier.has(key) for key in names) <= 65
    gate.set()
    tier.close()


def test_a_disk_that_fails_costs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    assert filled(tmp_path, 3) and list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        DiskTier(tmp_path / "file", 10**6, BYTES)
