"""Fetching models of several files: directories of the hub, and GGUF shards; each file resumed and proved."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.weights.hf_directory import safetensors_bytes
from tests.weights.hub import Hub
from tests.weights.test_gguf_shards import shard_path, write_model

from twostroke.weights.cache import find_cached, list_cached, remove
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.fetch import pull, resolve
from twostroke.weights.gguf import GGUFFile

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
    "model.safetensors.index.json": json.dumps({"weight_map": {"a": ONE, "b": TWO}}).encode(),
    ONE: safetensors_bytes({"a": np.arange(6, dtype=np.float32)}),
    TWO: safetensors_bytes({"b": np.arange(4, dtype=np.float16)}),
    "README.md": b"not needed",
    "pytorch_model.bin": b"never fetched",
}
NEEDED = sorted(FILES.keys() - {"README.md", "pytorch_model.bin"})


@pytest.fixture
def hub(hub_host: Hub, cache: Path) -> Hub:
    hub_host.begin(b"")
    publish(hub_host, FILES)
    return hub_host


def publish(host: Hub, files: Mapping[str, bytes], sums: Mapping[str, str] | None = None) -> None:
    """A repository owner/name: weights with their SHA-256, other files with Git's sum, or those of `sums`."""
    tree = [{"type": "file", "path": name, "size": len(body), "oid": "0" * 40} for name, body in files.items()]
    about = {"id": "owner/name", "siblings": [{"rfilename": name} for name in files]}
    kind = {"Content-Type": "application/json"}
    host.extra["/api/models/owner/name/tree/main"] = (kind, json.dumps(tree).encode(), 200)
    host.extra["/api/models/owner/name"] = (kind, json.dumps(about).encode(), 200)
    for name, body in files.items():
        is_large = name.endswith((".safetensors", ".gguf"))
        blob = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
        etag = (sums or {}).get(name, hashlib.sha256(body).hexdigest() if is_large else blob)
        host.extra[f"/owner/name/resolve/main/{name}"] = ({"ETag": f'"{etag}"', "X-Repo-Commit": "0" * 40}, body, 200)


def fetched(host: Hub) -> list[str]:
    gets = [path for method, path, _ in host.requests if method == "GET" and "resolve" in path]
    return sorted(path.partition("/resolve/main/")[2] for path in gets)


def test_a_directory(hub: Hub) -> None:
    path = Path(hub.pull("hf:owner/name"))
    found = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    assert found == NEEDED == fetched(hub)
    with Checkpoint.open(path) as checkpoint:
        assert list(checkpoint.tensors) == ["a", "b"]
    (cached,) = list_cached()
    lines = [f"{hashlib.sha256(FILES[name]).hexdigest()}  {name}\n" for name in NEEDED]
    assert cached.sha256 == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert (cached.model, cached.path) == ("hf:owner/name", path)
    assert cached.num_bytes == sum(len(FILES[name]) for name in NEEDED)
    hub.requests.clear()
    assert hub.pull("hf:owner/name") == str(path) and not hub.requests
    assert remove("hf:owner/name") > cached.num_bytes
    assert not path.exists() and find_cached("hf:owner/name") is None


def test_a_directory_that_lost_a_file_is_fetched_again(hub: Hub) -> None:
    path = Path(hub.pull("hf:owner/name"))
    (path / ONE).unlink()
    assert find_cached("hf:owner/name") is None
    hub.requests.clear()
    assert hub.pull("hf:owner/name") == str(path)
    assert (path / ONE).read_bytes() == FILES[ONE]
    assert fetched(hub) == ["config.json", ONE]  # what is there and proved stays; the last file ends a fetch


@pytest.mark.parametrize("name", [TWO, "config.json"])
def test_a_wrong_sum_is_named_and_the_rest_is_kept(hub: Hub, name: str) -> None:
    wrong = "ab" * (32 if name == TWO else 20)
    publish(hub, FILES, {name: wrong})
    answer = hub.pull("hf:owner/name")
    assert answer.startswith(f"ChecksumError {name}: ") and answer.endswith(f"expected {wrong}")
    assert find_cached("hf:owner/name") is None
    publish(hub, FILES)
    hub.requests.clear()
    path = Path(hub.pull("hf:owner/name"))
    assert (path / name).read_bytes() == FILES[name]
    assert ONE not in fetched(hub)


def test_a_damaged_shard_is_refused(hub: Hub) -> None:
    publish(hub, {**FILES, TWO: FILES[TWO][:-1]})
    answer = hub.pull("hf:owner/name")
    assert answer.startswith("FetchError hf:owner/name is not usable: ") and "cut short" in answer
    assert find_cached("hf:owner/name") is None


def test_a_repository_without_a_model(hub: Hub) -> None:
    publish(hub, {"config.json": b"{}", "pytorch_model.bin": b""})
    answer = hub.pull("hf:owner/name")
    assert answer.startswith("ModelNotFoundError hf:owner/name: name one of its GGUF files")
    assert answer.endswith("it has none, and no model.safetensors with config.json")


def test_shards_of_the_hub(hub: Hub, tmp_path: Path) -> None:
    write_model(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.glob("tiny-*")}
    publish(hub, files)
    path = Path(hub.pull("hf:owner/name"))
    assert path.name == shard_path(tmp_path, 1).name and fetched(hub) == sorted(files)
    with GGUFFile.open(path) as file:
        assert list(file.names) == ["embed", "a", "b"]
    hub.requests.clear()
    assert hub.pull(f"hf:owner/name/{path.name}") == str(path)
    (cached,) = list_cached()
    assert cached.num_bytes == sum(map(len, files.values()))


def test_shards_of_an_address(hub: Hub, tmp_path: Path) -> None:
    write_model(tmp_path)
    for path in tmp_path.glob("tiny-*"):
        hub.extra[f"/files/{path.name}"] = ({}, path.read_bytes(), 200)
    url = f"{hub.url}/files/{shard_path(tmp_path, 2).name}"
    found = pull(url, progress=lambda progress: None)
    assert resolve(url) == found and found.name == shard_path(tmp_path, 1).name
    GGUFFile.open(found).close()
