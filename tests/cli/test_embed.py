"""`twostroke embed`: the vectors of the Python API, from arguments and from lines."""

from pathlib import Path

import numpy as np
import pytest
from tests.cli.command_line import invoke, json_of, output_of
from tests.tiny import write_tiny_gguf
from tests.tiny_directory import write_tiny_directory

from twostroke import LLM
from twostroke.errors import InvalidRequestError

TEXTS = ["a cup of tea", "rain, rain", "tea"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("models") / "m.gguf", "qwen2", seed=2))


def test_arguments_and_lines_are_texts(model: str) -> None:
    with LLM(model) as llm:
        expected = llm.embed(TEXTS)
        count = sum(len(llm.tokenizer.encode(text)) for text in TEXTS)
    found = json_of("embed", model, *TEXTS)
    assert np.array_equal(np.array(found.pop("embeddings"), np.float32), expected)
    assert found == {"model": model, "pooling": "last", "normalized": True, "dim": 64, "prompt_tokens": count}
    lines = output_of("embed", model, text="\n".join(TEXTS)).splitlines()
    rows = np.array([[float(number) for number in line.split()] for line in lines], np.float32)
    assert np.abs(rows - expected).max() < 1e-7


def test_pooling_and_length_are_chosen(model: str) -> None:
    found = json_of("embed", model, "a cup of tea", "--pooling", "mean", "--raw-length")
    assert (found["pooling"], found["normalized"]) == ("mean", False)
    with LLM(model) as llm:
        expected = llm.embed("a cup of tea", pooling="mean", normalize=False)
    assert np.array_equal(np.array(found["embeddings"], np.float32), expected)
    assert invoke("embed", model, "x", "--pooling", "max").exit_code == 2


def test_a_directory(model: str, tmp_path: Path) -> None:
    path = write_tiny_directory(tmp_path / "model", Path(model))
    assert json_of("embed", str(path), *TEXTS)["embeddings"] == json_of("embed", model, *TEXTS)["embeddings"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "has no texts"), (b"\xff\n", "not UTF-8: byte 0 is 0xff"), ("tea\n" * 300 + "\n", "line 301 .* is empty")],
)
def test_what_cannot_be_embedded(model: str, text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        output_of("embed", model, text=text)
