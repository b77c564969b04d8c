"""The GGUF reader on damaged files: each kind by hand, 200 cuts, 2,000 seeded mutations. Never a crash, only errors."""

import os
import shutil
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.weights.gguf_writer import ARRAY, BOOL, F32, Q4_K, STRING, UINT8, UINT32, Field, GGUFWriter, sound_file

from twostroke.errors import ModelFileError, TwostrokeError, UnsupportedModelError
from twostroke.weights.gguf import GGUFFile

SPARE_BYTES = 64 << 20


def one_key(*key: object) -> bytes:
    writer = GGUFWriter()
    writer.start(0, 1)
    writer.key(*key)  # type: ignore[arg-type]
    return writer.body(64)


def two_keys(name: str) -> bytes:
    writer = GGUFWriter()
    writer.start(0, 2)
    writer.key(name, UINT8, 1)
    writer.key(name, UINT8, 2)
    return writer.body(64)


def tensors(*table: tuple[str, tuple[int, ...], int, int], data: int = 4096) -> bytes:
    writer = GGUFWriter()
    writer.start(len(table), 0)
    for row in table:
        writer.tensor(*row)
    return writer.body(data)


def head(version: int = 3, num_tensors: int = 0, num_keys: int = 0) -> bytes:
    writer = GGUFWriter()
    writer.start(num_tensors, num_keys, version)
    return writer.body(64)


def long_array(item_type: int) -> bytes:
    """An array that claims 2^61 items."""
    writer = GGUFWriter()
    writer.start(0, 1)
    writer.key("list", ARRAY, [], item_type)
    struct.pack_into("<Q", writer.data, len(writer.data) - 8, 1 << 61)
    return writer.body(64)


# what is wrong -> (the file, a pattern of the message)
DAMAGE: dict[str, tuple[bytes, str]] = {
    "another format": (b"PK\3\4" + bytes(60), r"not a GGUF file"),
    "shorter than a header": (b"GGUF\3\0\0\0\0\0\0\0", r"tensor count needs 8 bytes at byte 8; the file ends at 12"),
    "too many tensors": (head(num_tensors=1 << 62), r"tensor count is 4,611,686,018,427,387,904; .* room for 2"),
    "too many keys": (head(num_keys=(1 << 64) - 1), r"metadata count is 18,446,744,073,709,551,615"),
    "key without a name, and no more": (b"GGUF" + struct.pack("<IQQQIB", 3, 0, 1, 0, 0, 1), r"key 0 has an empty name"),
    "key beyond the end": (
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 40) + bytes(64),
        r"length of metadata key 0 is 1,099,511,627,776",
    ),
    "key not UTF-8": (one_key(b"k\xff", UINT8, 1), r"key 0 is not UTF-8 at byte 33"),
    "key twice": (two_keys("general.name"), r"'general\.name' occurs twice"),
    "value type unknown": (one_key("k", 13, 0), r"'k' has the unknown type 13"),
    "item type unknown": (one_key("k", ARRAY, [0], 77), r"'k' has the unknown item type 77"),
    "arrays in arrays": (one_key("k", ARRAY, [0], ARRAY), r"'k' is an array of arrays"),
    "string not UTF-8": (one_key("k", STRING, b"ab\xc3"), r"'k' is not UTF-8"),
    "string in a list not UTF-8": (one_key("k", ARRAY, ["ok", b"\xe6\x97", b"\xa5"], STRING), r"'k'\[1\] is not UTF-8"),
    "list of strings too long": (long_array(STRING), r"length of metadata 'list' is 2,305,843,009,213,693,952"),
    "list of numbers too long": (long_array(UINT32), r"length of metadata 'list' is 2,305,843,009,213,693,952"),
    "boolean of 2": (one_key("k", BOOL, 2), r"'k' is a boolean of value 2"),
    "booleans of 2": (one_key("k", ARRAY, [1, 2], BOOL), r"'k' holds a boolean that is neither"),
    "alignment 0": (one_key("general.alignment", UINT32, 0), r"'general\.alignment' is 0, not a power of two"),
    "alignment 48": (one_key("general.alignment", UINT32, 48), r"'general\.alignment' is 48, not a power of two"),
    "alignment 2^31": (one_key("general.alignment", UINT32, 1 << 31), r"'general\.alignment' is 2,147,483,648"),
    "alignment a string": (one_key("general.alignment", STRING, "32"), r"'general\.alignment' is not an integer"),
    "no dimensions": (tensors(("t", (), F32, 0)), r"'t' has 0 dimensions"),
    "five dimensions": (tensors(("t", (1, 1, 1, 1, 1), F32, 0)), r"'t' has 5 dimensions"),
    "a dimension of 0": (tensors(("t", (4, 0), F32, 0)), r"'t' has a dimension of 0: \[4, 0\]"),
    "size wraps 64 bits": (
        tensors(("t", ((1 << 42) + 1, 1 << 20), F32, 0)),
        r"'t' \[1048576, 4398046511105\] F32 ends at byte 18,446,744,073,713,746,016, but the file has 4,192",
    ),
    "row not whole blocks": (tensors(("t", (100, 2), Q4_K, 0)), r"'t' has rows of 100 values, .* Q4_K block of 256"),
    "offset not aligned": (tensors(("t", (8,), F32, 4)), r"'t' has offset 4, not a multiple of the alignment 32"),
    "offset beyond the file": (tensors(("t", (8,), F32, 1 << 63)), r"'t' .* but the file has 4,160"),
    "tensors overlap": (tensors(("a", (16,), F32, 0), ("b", (8,), F32, 32)), r"'a' and 'b' overlap at byte 128"),
    "tensor twice": (tensors(("t", (8,), F32, 0), ("t", (8,), F32, 32)), r"tensor 't' occurs twice"),
    "tensor without a name": (tensors(("", (8,), F32, 0)), r"tensor 0 has an empty name"),
}
UNSUPPORTED: dict[str, tuple[bytes, str]] = {
    "version 1": (head(version=1), r"GGUF version 1 is not supported"),
    "version 4": (head(version=4), r"GGUF version 4 is not supported"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(64), r"big-endian GGUF files are not supported"),
    "tensor type unknown": (tensors(("t", (32,), 99, 0)), r"'t' has the unknown tensor type 99"),
    "tensor type of our own": (tensors(("t", (128,), 1000, 0)), r"'t' has the unknown tensor type 1000"),
    "tensor type removed": (tensors(("t", (32,), 4, 0)), r"'t' has the unknown tensor type 4"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(tmp_path: Path, kind: str) -> None:
    content, message = DAMAGE[kind]
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=rf"^\S*broken\.gguf: .*{message}") as caught:
        GGUFFile.open(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_what_is_not_supported_is_named(tmp_path: Path, kind: str) -> None:
    content, message = UNSUPPORTED[kind]
    path = tmp_path / "other.gguf"
    path.write_bytes(content)
    with pytest.raises(UnsupportedModelError, match=rf"^\S*other\.gguf: .*{message}"):
        GGUFFile.open(path)


def test_200_cuts(tmp_path: Path) -> None:
    content, _ = sound_file()
    path = tmp_path / "cut.gguf"
    cuts = sorted({*range(40), *np.linspace(40, len(content) - 1, 170, dtype=int).tolist(), len(content) - 1})
    assert len(cuts) >= 200
    for cut in cuts:
        path.write_bytes(content[:cut])
        with pytest.raises(ModelFileError, match=r"cut\.gguf: .*"):
            GGUFFile.open(path)
    with pytest.raises(ModelFileError, match=r"'output_norm\.weight' \[33\] F32 ends at byte ([\d,]+), but the file"):
        GGUFFile.open(path)
    path.write_bytes(content)
    GGUFFile.open(path).close()


def test_a_download_cut_short_names_tensor_and_sizes(smollm2_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    shutil.copyfile(smollm2_path, path)
    for size in (98_362_431, 60_000_000, 2_000_000):
        os.truncate(path, size)
        with pytest.raises(ModelFileError, match=rf"tensor '\S+' .* ends at byte [\d,]+, but the file has {size:,}"):
            GGUFFile.open(path)
    os.truncate(path, 1_000_000)
    with pytest.raises(ModelFileError, match=r"'tokenizer\.ggml\.merges'.* the file ends at 1,000,000"):
        GGUFFile.open(path)


def spoil(content: bytearray, field: Field, rng: np.random.Generator) -> None:
    """Change one field: to a boundary value, a near one, a random one, or one with a bit flipped."""
    size = struct.calcsize(field.layout)
    old = int.from_bytes(content[field.offset : field.offset + size], "little")
    bits = 8 * size
    boundaries = [0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, 1 << (bits // 2), len(content)]
    choices: list[Callable[[], int]] = [
        lambda: boundaries[rng.integers(len(boundaries))],
        lambda: old + int(rng.integers(-9, 10)),
        lambda: int.from_bytes(rng.bytes(size), "little"),
        lambda: int(rng.integers(0, 64)),
        lambda: old ^ 1 << int(rng.integers(bits)),
    ]
    new = choices[rng.integers(len(choices))]() % (1 << bits)
    content[field.offset : field.offset + size] = new.to_bytes(size, "little")


def open_and_read(path: Path) -> bool:
    """Whether the file opens; if so, every byte of every tensor is read."""
    try:
        with GGUFFile.open(path) as file:
            for name in file.names:
                file.data(name).sum()
            return True
    except TwostrokeError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        return False


def test_2000_mutations(tmp_path: Path) -> None:
    """Any exception but ours fails. Most changes are caught; some (another type of equal size) leave a valid file."""
    content, fields = sound_file()
    path = tmp_path / "mutated.gguf"
    path.write_bytes(content)
    outcomes = []
    tracemalloc.start()
    try:
        for seed in range(2_000):
            rng = np.random.default_rng(seed)
            mutated = bytearray(content)
            for _ in range(1 + seed % 2):
                spoil(mutated, fields[rng.integers(len(fields))], rng)
            with path.open("r+b") as file:  # in place: a file cut to nothing first waits for the disk
                file.write(mutated)
            tracemalloc.reset_peak()
            before, started = tracemalloc.get_traced_memory()[0], time.process_time()
            outcomes.append(open_and_read(path))
            assert tracemalloc.get_traced_memory()[1] - before < len(content) + SPARE_BYTES, seed
            assert time.process_time() - started < 5, seed
    finally:
        tracemalloc.stop()
    assert 100 < sum(outcomes) < 1_000  # both outcomes are really exercised


def list_file(count: int, item: bytes) -> bytes:
    """A file whose one key is a list of `count` equal strings."""
    entry = struct.pack("<Q", len(item)) + item
    return b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", ARRAY, STRING, count) + entry * count


@pytest.mark.parametrize(
    ("count", "item"),
    [
        (3 << 20, b""),
        (1 << 20, b"ab"),
        (4096, "😀".encode() + b"x" * 900),
        (6, b"y" * (5 << 20)),
        (2, b"z" * (9 << 20)),
    ],
    ids=["empty", "short", "wide", "long", "longest"],
)
def test_memory_is_bounded_by_the_file(tmp_path: Path, count: int, item: bytes) -> None:
    """Strings that would take many times their bytes in memory are refused before they do."""
    path = tmp_path / "greedy.gguf"
    path.write_bytes(list_file(count, item))
    tracemalloc.start()
    try:
        opened = open_and_read(path)
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size + SPARE_BYTES
    finally:
        tracemalloc.stop()
    assert opened == (item.startswith("😀".encode()))
