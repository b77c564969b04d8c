"""Hugging Face directories: what the safetensors library reads, we read; each kind of damage is named."""

import json
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from tests.weights.hf_directory import bf16, raw_file, safetensors_bytes, write_directory

from twostroke.errors import ModelFileError, ModelNotFoundError, TwostrokeError, UnsupportedModelError
from twostroke.weights.checkpoint import Checkpoint

INDEX = "model.safetensors.index.json"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
A, B = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(5, dtype=np.float16)


def test_what_the_library_writes(tmp_path: Path) -> None:
    arrays = {
        "a": A,
        "b": B,
        "ints": np.arange(6, dtype=np.int32).reshape(1, 2, 3),
        "scalar": np.array(3, np.float32),
    }
    arrays["empty"] = np.zeros((0, 4), np.float32)
    safetensors.numpy.save_file(arrays, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text('{"hidden_size": 4}')
    with Checkpoint.open(tmp_path) as checkpoint:
        assert checkpoint.config == {"hidden_size": 4}
        assert checkpoint.num_bytes == (tmp_path / "model.safetensors").stat().st_size
        assert checkpoint.tensors.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(checkpoint.array(name), array, strict=True)
            assert not checkpoint.array(name).flags.writeable
            checkpoint.release(name)
            assert checkpoint.data(name).tobytes() == array.tobytes()
        with pytest.raises(ModelFileError, match="tensor 'absent' is missing"):
            checkpoint.raw("absent")


def test_the_library_reads_our_test_files(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    path.write_bytes(safetensors_bytes({"a": A, "b": B}, {"format": "pt"}))
    loaded = safetensors.numpy.load_file(path)
    np.testing.assert_array_equal(loaded["a"], A)
    np.testing.assert_array_equal(loaded["b"], B)


def test_shards_and_other_dtypes(tmp_path: Path) -> None:
    codes = np.arange(256, dtype=np.uint8)
    write_directory(tmp_path, {ONE: {"a": bf16(A)}, TWO: {"b": B, "codes": ("F8_E4M3", codes)}})
    with Checkpoint.open(tmp_path) as checkpoint:
        assert [(t.dtype, t.shape) for t in checkpoint.tensors.values()] == [
            ("BF16", (3, 4)),
            ("F16", (5,)),
            ("F8_E4M3", (256,)),
        ]
        np.testing.assert_array_equal(checkpoint.array("a"), bf16(A)[1])
        np.testing.assert_array_equal(checkpoint.array("codes"), codes)


def test_one_file_is_preferred_to_an_index(tmp_path: Path) -> None:
    write_directory(tmp_path, {"model.safetensors": {"a": A}}, index={"a": "gone.safetensors"})
    with Checkpoint.open(tmp_path) as checkpoint:
        assert list(checkpoint.tensors) == ["a"]


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def header(*entries: dict[str, object], body: int = 8) -> bytes:
    return raw_file(json.dumps({f"t{i}": row for i, row in enumerate(entries)}), bytes(body))


# what is wrong -> (the file, a pattern of the message)
DAMAGE: dict[str, tuple[bytes, str]] = {
    "shorter than a length": (b"\1\0\0", r"length of the header needs 8 bytes"),
    "length beyond the end": (struct.pack("<Q", 1 << 60) + b"{}", r"length of the header is 1,152,921,504,606,846,976"),
    "length over the limit": (struct.pack("<Q", 2 << 20) + bytes(2 << 20), r"at most 1,081,344 are allowed"),
    "not JSON": (raw_file("{]"), r"header: not sound JSON"),
    "not UTF-8": (raw_file(b'{"\xff": 1}'), r"header: not sound JSON"),
    "not an object": (raw_file("[]"), r"header: not a JSON object"),
    "deep": (raw_file("[" * 100_000), r"header: nested too deeply|not sound JSON"),
    "deep objects": (raw_file('{"a":' * 50_000), r"header: nested too deeply|not sound JSON"),
    "twice": (raw_file('{"a": 1, "a": 1}'), r"header: not sound JSON: 'a' occurs twice"),
    "not described": (header({"dtype": "F32"}), r"'t0' is not described by dtype, shape and data_offsets"),
    "an extra key": (header({**entry(), "x": 1}), r"'t0' is not described by"),
    "negative dimension": (header(entry(shape=[-2])), r"'t0' has a shape that is not up to 8 counts"),
    "fraction as dimension": (header(entry(shape=[2.0])), r"'t0' has a shape"),
    "boolean as dimension": (header(entry(shape=[True, 2])), r"'t0' has a shape"),
    "nine dimensions": (header(entry(shape=[1] * 8 + [2])), r"'t0' has a shape"),
    "size wraps 64 bits": (header(entry(shape=[1 << 62, 4, 2])), r"needs 147,573,952,589,676,412,928 bytes; .* has 8"),
    "offsets turned": (header(entry(offsets=[8, 0])), r"'t0' has data_offsets that are not a begin and an end"),
    "one offset": (header(entry(offsets=[8])), r"'t0' has data_offsets"),
    "shape and offsets differ": (header(entry(shape=[3])), r"'t0' \[3\] F32 needs 12 bytes; its place has 8"),
    "gap": (header(entry(), entry(offsets=[12, 20]), body=20), r"'t1' at byte \d+ leaves a gap after 't0'"),
    "gap at the start": (header(entry(offsets=[4, 12]), body=12), r"'t0' at byte \d+ leaves a gap after the header"),
    "overlap": (header(entry(), entry(offsets=[4, 12]), body=12), r"'t1' at byte \d+ overlaps 't0'"),
    "same place": (header(entry(), entry()), r"'t1' at byte \d+ overlaps 't0'"),
    "bytes after": (header(entry(), body=10), r"2 bytes follow the last tensor"),
    "cut short": (header(entry(), body=3), r"its tensors need \d+ bytes, but the file has \d+: cut short or damaged"),
    "nothing": (b"", r"the file is empty"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(tmp_path: Path, kind: str) -> None:
    content, message = DAMAGE[kind]
    write_directory(tmp_path, {})
    (tmp_path / "model.safetensors").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=rf"model\.safetensors: .*({message})") as caught:
            Checkpoint.open(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < len(content) + (64 << 20)
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)


def test_an_unknown_dtype_is_named(tmp_path: Path) -> None:
    write_directory(tmp_path, {})
    (tmp_path / "model.safetensors").write_bytes(header(entry(dtype="F4")))
    with pytest.raises(UnsupportedModelError, match=r"model\.safetensors: tensor 't0' has the unknown dtype 'F4'"):
        Checkpoint.open(tmp_path)


def test_a_shard_cut_short_names_it_and_both_sizes(tmp_path: Path) -> None:
    write_directory(tmp_path, {ONE: {"a": A}, TWO: {"b": np.zeros(1000, np.float32)}})
    shard = tmp_path / TWO
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-500])
    message = rf"{TWO}: its tensors need {len(whole):,} bytes, but the file has {len(whole) - 500:,}: cut short"
    with pytest.raises(ModelFileError, match=message):
        Checkpoint.open(tmp_path)


# what is wrong -> (the index, a pattern of the message)
INDICES: dict[str, tuple[str, str]] = {
    "not JSON": ("{", r"index\.json: not sound JSON"),
    "no map": ("{}", r"index\.json: 'weight_map' does not give a file for each tensor"),
    "a list": ('{"weight_map": ["a"]}', r"'weight_map' does not give a file"),
    "numbers": ('{"weight_map": {"a": 1}}', r"'weight_map' does not give a file"),
    "nothing": ('{"weight_map": {}}', r"'weight_map' does not give a file"),
    "another directory": (
        '{"weight_map": {"a": "../secret.safetensors"}}',
        r"'\.\./secret\.safetensors', which is not",
    ),
    "an absolute path": (
        '{"weight_map": {"a": "/etc/passwd"}}',
        r"names '/etc/passwd', which is not a plain file name",
    ),
    "a backslash": ('{"weight_map": {"a": "..\\\\x"}}', r"which is not a plain file name"),
    "a null": ('{"weight_map": {"a": "a\\u0000b"}}', r"which is not a plain file name"),
    "no name": ('{"weight_map": {"a": ""}}', r"which is not a plain file name"),
    "a surrogate": ('{"weight_map": {"a": "\\ud800"}}', r"which is not a plain file name"),
    "missing": ('{"weight_map": {"a": "gone.safetensors"}}', r"gone\.safetensors: named by model.*, but missing"),
    "a folder": ('{"weight_map": {"a": "folder"}}', r"folder: not a regular file"),
    "a link": ('{"weight_map": {"a": "link.safetensors"}}', r"link\.safetensors: a link to .*, outside the model's"),
    "in another file": (f'{{"weight_map": {{"a": "{ONE}", "b": "{ONE}"}}}}', rf"{ONE}: tensor 'b' is missing"),
    "not there": (f'{{"weight_map": {{"a": "{ONE}", "c": "{TWO}"}}}}', rf"{TWO}: tensor 'c' is missing"),
}


@pytest.mark.parametrize("kind", INDICES)
def test_a_bad_index_is_named(tmp_path: Path, kind: str) -> None:
    content, message = INDICES[kind]
    path = write_directory(tmp_path / "model", {ONE: {"a": A}, TWO: {"b": B}})
    secret = tmp_path / "secret.safetensors"
    secret.write_bytes(safetensors_bytes({"a": A}))
    (path / "link.safetensors").symlink_to(secret)
    (path / "folder").mkdir()
    (path / INDEX).write_text(content)
    with pytest.raises(ModelFileError, match=message) as caught:
        Checkpoint.open(path)
    assert "\n" not in str(caught.value) and str(caught.value).isprintable()


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    write_directory(tmp_path, {ONE: {"a": A}, TWO: {"a": A, "b": B}}, index={"a": ONE, "b": TWO})
    with pytest.raises(ModelFileError, match=rf"{TWO}: tensor 'a' is also in {ONE}"):
        Checkpoint.open(tmp_path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="absent: no such directory"):
        Checkpoint.open(tmp_path / "absent")
    with pytest.raises(ModelFileError, match=r"config\.json: named by every model, but missing"):
        Checkpoint.open(tmp_path)
    write_directory(tmp_path, {})
    with pytest.raises(
        ModelFileError, match=r"neither model\.safetensors nor model\.safetensors\.index\.json is there"
    ):
        Checkpoint.open(tmp_path)
    (tmp_path / "config.json").write_text("[" * 5000)
    with pytest.raises(ModelFileError, match=r"config\.json: "):
        Checkpoint.open(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").symlink_to("/etc/hostname")
    with pytest.raises(ModelFileError, match=r"config\.json: a link to /etc/hostname, outside"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize("item", ["1,", "[],", "{},", '"ab",', '{"a":1},', "[[[[]]]],"])
def test_memory_is_bounded_by_the_file(tmp_path: Path, item: str) -> None:
    """The longest header of a small file, of what takes most memory when parsed."""
    size = 1 << 20
    expect_bounded(tmp_path, '{"a":[' + item * ((size - 10) // len(item)) + "1]}")


def test_memory_of_many_names_is_bounded(tmp_path: Path) -> None:
    expect_bounded(tmp_path, "{" + ",".join(f'"{i:x}":1' for i in range(105_000)) + "}")


def expect_bounded(path: Path, text: str) -> None:
    write_directory(path, {})
    (path / "model.safetensors").write_bytes(raw_file(text))
    tracemalloc.start()
    try:
        with pytest.raises(TwostrokeError, match="is not described by"):
            Checkpoint.open(path)
        assert tracemalloc.get_traced_memory()[1] < len(text) + (64 << 20)
    finally:
        tracemalloc.stop()
