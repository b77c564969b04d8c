"""Hugging Face directories and shards through the Python API: the same model gives the same tokens from any format."""

from pathlib import Path
from typing import Any

import pytest
from tests.golden.chat_templates import GEMMA
from tests.tiny import CONTROL_TOKENS, write_tiny_gguf
from tests.tiny_directory import write_tiny_directory

from twostroke import LLM
from twostroke.errors import ChatTemplateError, ModelFileError, ModelNotFoundError
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.gguf_writer import write_gguf

MESSAGES = [{"role": "user", "content": "a nice tea, 12 of them"}]
END_OF_TEXT, START, END_OF_TURN = range(320 - len(CONTROL_TOKENS), 320)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf", "qwen2", seed=5, tied=False)


def answers(path: Path) -> tuple[Any, ...]:
    with LLM(path, threads=1) as llm:
        chat = llm.chat(MESSAGES, temperature=0, max_tokens=30, ignore_eos=True)
        raw = llm.generate("tea is", temperature=0.9, top_p=0.9, seed=4, max_tokens=20)
        return chat.token_ids, chat.prompt_tokens, raw.token_ids, raw.text, llm.score("a nice tea").logprobs


def test_a_directory_is_the_model_that_the_file_is(gguf: Path, tmp_path: Path) -> None:
    expected = answers(gguf)
    for num_shards in (1, 3):
        folder = write_tiny_directory(tmp_path / str(num_shards), gguf, num_shards=num_shards)
        assert len(list(folder.glob("*.safetensors"))) == num_shards
        assert answers(folder) == expected


def test_shards_are_the_model_that_the_file_is(gguf: Path, tmp_path: Path) -> None:
    """Named by any of them."""
    with GGUFFile.open(gguf) as file:
        names = list(file.names)
        for number, part in enumerate((names[:9], names[9:])):
            split = {"split.no": number, "split.count": 2, "split.tensors.count": len(names)}
            tensors = {name: (file.info(name).type, file.info(name).shape) for name in part}
            path = tmp_path / f"m-0000{number + 1}-of-00002.gguf"
            write_gguf(path, {**(file.metadata if number == 0 else {}), **split}, tensors, file.data)
    expected = answers(gguf)
    for number in (1, 2):
        assert answers(tmp_path / f"m-0000{number}-of-00002.gguf") == expected


def test_an_answer_ends_at_what_any_of_the_files_calls_an_end(gguf: Path, tmp_path: Path) -> None:
    """The generation config lists one end, the tokenizer's end of turn is another, the config has a third (LIM-06)."""
    third = 65
    files = {
        "generation_config.json": {"eos_token_id": [END_OF_TEXT]},
        "tokenizer_config.json": {"eos_token": "<|im_end|>"},
        "config.json": {"eos_token_id": third},
    }
    with LLM(write_tiny_directory(tmp_path / "model", gguf, files=files), threads=1) as llm:
        for token_id in (END_OF_TEXT, END_OF_TURN, third):
            found = llm.generate("tea", temperature=0, max_tokens=5, logit_bias={token_id: 1e6})
            assert (found.finish_reason, found.token_ids) == ("stop", (token_id,))
        other = llm.generate("tea", temperature=0, max_tokens=5, logit_bias={66: 1e6})
        assert (other.finish_reason, len(other.token_ids)) == ("length", 5)


@pytest.mark.parametrize("ends", [None, "<|endoftext|>", ["<|endoftext|>", "<end_of_turn>"]])
def test_an_answer_of_gemmas_ends_with_its_turn(gguf: Path, tmp_path: Path, ends: str | list[str] | None) -> None:
    """The end of a turn ends a greeting's answer, whether the files call it an end, name another, or none (LIM-05)."""
    ids = {"<|endoftext|>": END_OF_TEXT, "<end_of_turn>": END_OF_TURN}
    named = [ids[name] for name in ends] if isinstance(ends, list) else ids.get(ends or "")
    files = {
        "generation_config.json": {"eos_token_id": named} if named is not None else {},
        "tokenizer_config.json": {"chat_template": GEMMA, "eos_token": "<|endoftext|>"},
    }
    folder = write_tiny_directory(tmp_path / "model", gguf, files=files)
    for path in folder.glob("*.json"):
        text = path.read_text("utf-8").replace("<|im_start|>", "<start_of_turn>")
        path.write_text(text.replace("<|im_end|>", "<end_of_turn>"), "utf-8")
    greeting = [{"role": "user", "content": "Hello"}]
    with LLM(folder, threads=1) as llm:
        assert llm.tokenizer.decode(llm.render(greeting).ids, skip_special=False).endswith("<start_of_turn>model\n")
        found = llm.chat(greeting, temperature=0, max_tokens=5, logit_bias={END_OF_TURN: 1e6})
        assert (found.finish_reason, found.token_ids, found.text) == ("stop", (END_OF_TURN,), "")


def test_sampling_defaults_are_the_directorys(gguf: Path, tmp_path: Path) -> None:
    given = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05, "do_sample": True}
    path = write_tiny_directory(tmp_path / "model", gguf, files={"generation_config.json": given})
    with LLM(path, threads=1) as llm:
        assert dict(llm.defaults.items()) == {
            **{name: value for name, value in given.items() if name != "do_sample"},
            **dict.fromkeys(("min_p", "presence_penalty", "frequency_penalty"), 0.0),
        }
    greedy = write_tiny_directory(tmp_path / "model", gguf, files={"generation_config.json": {"do_sample": False}})
    with LLM(greedy, threads=1) as llm:
        assert dict(llm.defaults.items())["temperature"] == 0


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({"tokenizer.json": None}, ModelFileError, "tokenizer.json is missing"),
        ({"config.json": None}, ModelFileError, "a directory without config.json"),
        ({"model.safetensors": None}, ModelFileError, "neither model.safetensors nor"),
        ({"generation_config.json": {"temperature": "hot"}}, ModelFileError, "'temperature' is not a finite number"),
        ({"config.json": {"hidden_size": 32}}, ModelFileError, "has shape"),
    ],
)
def test_what_a_directory_lacks_is_named(
    gguf: Path, tmp_path: Path, files: dict[str, Any], error: type[Exception], message: str
) -> None:
    path = write_tiny_directory(tmp_path / "model", gguf, files=files)
    with pytest.raises(error, match=message) as caught:
        LLM(path, threads=1)
    assert str(path) in str(caught.value)
    with pytest.raises(ModelNotFoundError, match="no such model"):
        LLM(tmp_path / "modle", threads=1)


def test_without_a_template_texts_can_be_completed(gguf: Path, tmp_path: Path) -> None:
    files = {"tokenizer_config.json": {"chat_template": None}}
    with LLM(write_tiny_directory(tmp_path / "model", gguf, files=files), threads=1) as llm:
        with pytest.raises(ChatTemplateError, match="--raw"):
            llm.chat(MESSAGES)
        assert llm.generate("tea", temperature=0, max_tokens=3).token_ids


def test_a_context_fixes_the_scaling_of_rope(gguf: Path, tmp_path: Path) -> None:
    """Dynamic scaling is that of the context asked for; within the trained one there is none."""
    scaling = {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}, "max_position_embeddings": 64}
    path = write_tiny_directory(tmp_path / "model", gguf, files={"config.json": scaling})
    plain = write_tiny_directory(tmp_path / "plain", gguf, files={"config.json": {"max_position_embeddings": 64}})
    scores = {}
    for name, folder, context in (("plain", plain, 64), ("short", path, 64), ("long", path, 256)):
        with LLM(folder, threads=1, context=context) as llm:
            scores[name] = llm.score("a nice tea and more of it").logprobs
    assert scores["short"] == scores["plain"] != scores["long"]
