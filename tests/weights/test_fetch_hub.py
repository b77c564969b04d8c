"""Fetching `hf:` names, from a server on this machine that answers as the hub does."""

import hashlib
import json
from pathlib import Path

import pytest
from tests.weights.hub import Hub


@pytest.fixture
def hub(hub_host: Hub, model_bytes: bytes, cache: Path) -> Hub:
    """One repository, owner/name, whose large file lies under /blob/ and has its sum as the linked ETag."""
    hub_host.begin(model_bytes)
    answer_as_hub(hub_host, hashlib.sha256(model_bytes).hexdigest(), ["README.md", "model.gguf"])
    return hub_host


def answer_as_hub(host: Hub, sha256: str, files: list[str]) -> None:
    linked = {
        "Location": f"{host.url}/blob/model.gguf".replace("127.0.0.1", "localhost"),  # another host, as the real one
        "X-Linked-Etag": f'"{sha256}"',
        "X-Linked-Size": str(len(host.content)),
        "X-Repo-Commit": "0" * 40,
    }
    host.extra["/owner/name/resolve/main/model.gguf"] = (linked, b"", 302)
    tree = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in files]
    body = json.dumps(tree).encode()
    host.extra["/api/models/owner/name/tree/main"] = ({"Content-Type": "application/json"}, body, 200)
    about = {"id": "owner/name", "siblings": [{"rfilename": name} for name in files]}
    host.extra["/api/models/owner/name"] = ({"Content-Type": "application/json"}, json.dumps(about).encode(), 200)


def test_a_named_file_and_the_only_file(hub: Hub) -> None:
    hub.cuts = [400_000]
    path = hub.pull("hf:owner/name/model.gguf")
    assert Path(path).read_bytes() == hub.content
    assert hub.ranges[-2:] == [None, "bytes=400000-"]
    assert hub.pull("hf:owner/name") == path
    assert len([asked for method, asked, _ in hub.requests if method == "GET" and asked == "/blob/model.gguf"]) == 2


def test_the_only_file_is_found(hub: Hub) -> None:
    assert Path(hub.pull("hf:owner/name")).read_bytes() == hub.content


def test_the_hubs_sum_decides(hub: Hub, cache: Path) -> None:
    answer_as_hub(hub, "ab" * 32, ["model.gguf"])
    found = hashlib.sha256(hub.content).hexdigest()
    expected = f"ChecksumError model.gguf: SHA-256 is {found}, expected {'ab' * 32}"
    assert hub.pull("hf:owner/name/model.gguf") == expected
    assert not list(cache.rglob("model.gguf*"))


def test_names_that_are_not_there(hub: Hub) -> None:
    assert hub.pull("hf:owner").startswith("ModelNotFoundError hf:owner: expected hf:owner/name")
    absent = {"X-Error-Code": "EntryNotFound"}, b"", 404
    hub.extra["/owner/name/resolve/main/absent.gguf"] = absent
    message = "ModelNotFoundError hf:owner/name/absent.gguf: owner/name has no file absent.gguf"
    assert hub.pull("hf:owner/name/absent.gguf") == message
    hub.extra["/owner/other/resolve/main/model.gguf"] = {"X-Error-Code": "RepoNotFound"}, b"", 404
    message = "ModelNotFoundError hf:owner/other/model.gguf: the hub has no repository owner/other, or it is not public"
    assert hub.pull("hf:owner/other/model.gguf") == message
    hub.extra["/owner/name/resolve/main/model.gguf"] = {}, b"", 500
    assert hub.pull("hf:owner/name/model.gguf").startswith(
        "FetchError hf:owner/name/model.gguf: the hub cannot be asked"
    )
    answer_as_hub(hub, "ab" * 32, ["a.gguf", "b.gguf"])
    message = "ModelNotFoundError hf:owner/name: name one of its GGUF files, hf:owner/name/FILE; it has a.gguf, b.gguf"
    assert hub.pull("hf:owner/name") == message
