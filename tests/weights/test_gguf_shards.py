"""Models in several GGUF files: opened as one by any of them; what does not belong, or leads away, is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twostroke.errors import ModelFileError
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.gguf_writer import write_gguf
from twostroke.weights.tensor_types import TensorType

NAMES = (("embed", "a"), (), ("b",))


def shard_path(folder: Path, number: int, count: int = 3) -> Path:
    return folder / f"tiny-{number:05}-of-{count:05}.gguf"


def write_shard(path: Path, number: int, names: tuple[str, ...], changes: Mapping[str, Any]) -> None:
    """One shard; a change to None drops the key."""
    metadata = {"split.no": np.uint16(number), "split.count": np.uint16(3), "split.tensors.count": np.int32(3)}
    if number == 0:
        metadata |= {"general.architecture": "llama", "words": ["x", "y"]}
    kept = {key: value for key, value in {**metadata, **changes}.items() if value is not None}
    write_gguf(path, kept, dict.fromkeys(names, (TensorType.F32, (8, 4))), content)


def content(name: str) -> np.ndarray:
    return np.full((8, 4), ord(name[0]), np.float32).ravel().view(np.uint8)


def write_model(folder: Path, changed: int | None = None, changes: Mapping[str, Any] | None = None) -> None:
    for number, names in enumerate(NAMES):
        write_shard(shard_path(folder, number + 1), number, names, (changes or {}) if number == changed else {})


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_shard_opens_the_model(tmp_path: Path, number: int) -> None:
    write_model(tmp_path)
    with GGUFFile.open(shard_path(tmp_path, number)) as file:
        assert list(file.names) == ["embed", "a", "b"]
        assert file.metadata["general.architecture"] == "llama" and file.metadata["words"] == ["x", "y"]
        assert file.num_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
        for name in file.names:
            assert file.data(name).tobytes() == content(name).tobytes()
            file.release(name)
            assert file.data(name).tobytes() == content(name).tobytes()


# what is wrong with a shard -> (its number, the changed keys, a pattern of the message)
FOREIGN: dict[str, tuple[int, dict[str, Any], str]] = {
    "number": (1, {"split.no": 2}, r"00002-of-00003\.gguf: 'split\.no' is 2; it must be 1"),
    "number missing": (2, {"split.no": None}, r"00003-of-00003\.gguf: metadata 'split\.no' is missing"),
    "count of another": (1, {"split.count": 4}, r"00002-of-00003\.gguf: 'split\.count' is 4; it must be 3"),
    "count a string": (0, {"split.count": "3"}, r"00001-of-00003\.gguf: .*'split\.count' is not an integer but str"),
    "count a boolean": (0, {"split.count": True}, r"'split\.count' is not an integer but bool"),
    "count 0": (0, {"split.count": 0}, r"'split\.count' is 0"),
    "count not the name's": (0, {"split.count": 2}, r"'split\.count' is 2, so .* like NAME-00001-of-00002\.gguf"),
    "number negative": (1, {"split.no": -1}, r"'split\.no' is -1"),
    "total": (2, {"split.tensors.count": 4}, r"00003-of-00003\.gguf: 'split\.tensors\.count' is 4; the shards have 3"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_shard_is_named(tmp_path: Path, kind: str) -> None:
    number, changes, message = FOREIGN[kind]
    write_model(tmp_path, number, changes)
    with pytest.raises(ModelFileError, match=message):
        GGUFFile.open(shard_path(tmp_path, 1))


def test_missing_cut_and_repeated_shards(tmp_path: Path) -> None:
    write_model(tmp_path)
    last = shard_path(tmp_path, 3)
    whole = last.read_bytes()
    last.write_bytes(whole[:-40])
    with pytest.raises(ModelFileError, match=r"00003-of-00003\.gguf: tensor 'b' .* cut short"):
        GGUFFile.open(shard_path(tmp_path, 1))
    last.unlink()
    with pytest.raises(ModelFileError, match=r"00003-of-00003\.gguf: named by .* \(one of 3 shards\), but missing"):
        GGUFFile.open(shard_path(tmp_path, 1))
    write_shard(last, 2, ("a",), {})
    with pytest.raises(ModelFileError, match=r"00003-of-00003\.gguf: tensor 'a' is also in an earlier shard"):
        GGUFFile.open(shard_path(tmp_path, 2))


def test_a_shard_under_another_name_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path)
    renamed = shard_path(tmp_path, 1).rename(tmp_path / "model.gguf")
    with pytest.raises(ModelFileError, match=r"model\.gguf: 'split\.count' is 3, so the file must have a name"):
        GGUFFile.open(renamed)


def test_links_may_not_lead_away(tmp_path: Path) -> None:
    inside, outside = tmp_path / "model", tmp_path / "elsewhere"
    inside.mkdir()
    outside.mkdir()
    write_model(inside)
    shard = shard_path(inside, 2)
    moved = shard.rename(outside / "secret.gguf")
    shard.symlink_to(moved)
    with pytest.raises(ModelFileError, match=r"00002-of-00003\.gguf: a link to \S*secret\.gguf, outside the model's"):
        GGUFFile.open(shard_path(inside, 1))
    shard.unlink()
    shard.symlink_to(shard.name)
    with pytest.raises(ModelFileError, match=r"00002-of-00003\.gguf: "):
        GGUFFile.open(shard_path(inside, 1))
    shard.unlink()
    shard.symlink_to(moved.rename(inside / "other-name.gguf").name)
    GGUFFile.open(shard_path(inside, 1)).close()


def test_the_hubs_cache_links_to_its_blobs(tmp_path: Path) -> None:
    repository = tmp_path / "models--owner--name"
    snapshot, blobs = repository / "snapshots" / "0123abcd", repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    write_model(snapshot)
    for number in (1, 2, 3):
        path = shard_path(snapshot, number)
        path.rename(blobs / f"sum{number}")
        path.symlink_to(f"../../blobs/sum{number}")
    with GGUFFile.open(shard_path(snapshot, 1)) as file:
        assert list(file.names) == ["embed", "a", "b"]
