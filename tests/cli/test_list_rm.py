"""`twostroke list` and `twostroke rm` on a cache of small files."""

from pathlib import Path

import pytest
from tests.cli.command_line import invoke, json_of, output_of, put_in_cache
from tests.weights.gguf_writer import sound_file

from twostroke.errors import ModelNotFoundError
from twostroke.weights.aliases import load_aliases
from twostroke.weights.cache import list_cached

CONTENT = sound_file()[0]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory, empty."""
    path = tmp_path / "cache"
    monkeypatch.setenv("TWOSTROKE_CACHE", str(path))
    return path


def test_list_of_an_empty_cache_names_what_can_be_fetched(cache: Path) -> None:
    text = output_of("list")
    assert text.splitlines()[0] == f"nothing is in the cache, {cache}"
    assert all(name in text for name in load_aliases())
    listed = json_of("list")
    assert (listed["cache"], listed["models"]) == (str(cache), [])
    assert {row["model"] for row in listed["available"]} == set(load_aliases())


def test_list_shows_size_types_licence_and_path(cache: Path) -> None:
    path = put_in_cache("smollm2", CONTENT, "Apache-2.0")
    listed = json_of("list")
    assert [row["model"] for row in listed["available"]] == [
        name for name in sorted(load_aliases()) if name != "smollm2"
    ]
    (model,) = listed["models"]
    assert (model["model"], model["path"], model["bytes"]) == ("smollm2", str(path), len(CONTENT))
    assert model["license"] == "Apache-2.0"
    assert model["tensor_bytes"] == {"Q8_0": 544, "Q4_K": 432, "F32": 132, "Q4_1": 100}
    header, line = output_of("list").splitlines()[:2]
    assert header.split() == ["model", "size", "licence", "tensors", "by", "bytes", "file"]
    assert line.startswith("smollm2  ") and line.endswith(str(path))
    assert "Q8_0 45%, Q4_K 36%, F32 11%, Q4_1 8%" in line


def test_list_says_that_a_file_cannot_be_read(cache: Path) -> None:
    put_in_cache("hf:some/model/m.gguf", b"damaged")
    put_in_cache("smollm2", CONTENT)
    assert [row["tensor_bytes"] is None for row in json_of("list")["models"]] == [True, False]
    assert "the file cannot be read" in output_of("list")
    assert "not stated" in output_of("list")


def test_rm_frees_the_bytes_it_names(cache: Path) -> None:
    path = put_in_cache("smollm2", CONTENT)
    total = sum(file.stat().st_size for file in path.parent.iterdir())
    assert json_of("rm", "smollm2") == {"model": "smollm2", "bytes_freed": total}
    assert not path.parent.exists() and list_cached() == []
    put_in_cache("smollm2", CONTENT)
    assert output_of("rm", "smollm2").startswith("smollm2: removed, ")


def test_rm_names_the_file_that_a_repository_meant(cache: Path) -> None:
    put_in_cache("hf:some/model/m.gguf", CONTENT)
    put_in_cache("smollm2", CONTENT)
    assert json_of("rm", "hf:some/model")["model"] == "hf:some/model/m.gguf"
    assert [cached.model for cached in list_cached()] == ["smollm2"]


def test_rm_of_an_unknown_name_says_near_ones_and_removes_nothing(cache: Path) -> None:
    put_in_cache("smollm2", CONTENT)
    error = invoke("rm", "smolm2").exception
    assert isinstance(error, ModelNotFoundError) and str(error) == "smolm2 is not in the cache; did you mean smollm2?"
    error = invoke("rm", "zzz").exception
    assert isinstance(error, ModelNotFoundError) and str(error) == "zzz is not in the cache, which has smollm2"
    assert [cached.model for cached in list_cached()] == ["smollm2"]


def test_rm_leaves_files_outside_the_cache(cache: Path, tmp_path: Path) -> None:
    outside = tmp_path / "mine.gguf"
    outside.write_bytes(CONTENT)
    assert isinstance(invoke("rm", str(outside)).exception, ModelNotFoundError)
    assert outside.exists()
