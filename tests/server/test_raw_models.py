"""A model without a chat template whose texts begin with BOS: chats are refused, texts are completed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.running import RunningServer, running

from twostroke import LLM
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.gguf_writer import write_gguf

TEXT = "the rain"


@pytest.fixture(scope="module")
def raw(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    path = tmp_path_factory.mktemp("raw") / "raw.gguf"
    with GGUFFile.open(tiny_path) as file:
        metadata = {**file.metadata, "tokenizer.ggml.add_bos_token": True}
        del metadata["tokenizer.chat_template"]
        tensors = {name: (info.type, info.shape) for name, info in file.tensors.items()}
        write_gguf(path, metadata, tensors, file.data)
    with LLM(path, threads=1) as llm, running(llm) as server:
        yield server


def prompt_tokens(server: RunningServer, prompt: object, **options: object) -> int:
    usage = server.complete(prompt, max_tokens=1, ignore_eos=True, **options)["usage"]
    return int(usage["prompt_tokens"])


def test_a_chat_is_refused_and_a_text_completed(raw: RunningServer) -> None:
    response = raw.chat(TEXT)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error" and "no chat template" in error["message"]
    assert raw.complete(TEXT, max_tokens=3, ignore_eos=True)["usage"]["completion_tokens"] == 3


def test_a_prompt_has_bos_once(raw: RunningServer, tiny: LLM) -> None:
    """Asked for or not, rendered by the user or not; BOS's characters in a text that is not parsed are characters."""
    bos = raw.llm.tokenizer.bos_id
    assert bos is not None
    plain = tiny.tokenizer.encode(TEXT)
    rendered = raw.llm.tokenizer.token_text(bos) + TEXT
    assert prompt_tokens(raw, TEXT) == 1 + len(plain)
    assert prompt_tokens(raw, TEXT, add_special_tokens=False) == len(plain)
    for prompt, options in ((TEXT, {}), (rendered, {"parse_special": True})):
        ids = raw.post("/tokenize", prompt=prompt, **options).json()["tokens"]
        assert ids == [bos, *plain]
        assert prompt_tokens(raw, ids) == len(ids)  # ids are taken as they are
    assert raw.post("/tokenize", prompt=rendered).json()["tokens"].count(bos) == 1
