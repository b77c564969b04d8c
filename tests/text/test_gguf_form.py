"""Tokenizers of directories as GGUF keys: the same ids, roles and templates; what has no form is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from twostroke.errors import UnsupportedModelError
from twostroke.text.gguf_form import gguf_tokenizer
from twostroke.text.tokenizer import Tokenizer

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "huggingface.json").read_text("utf-8"))
FILES = GOLDEN["files"]
# Those that the format can say; the rest put spaces where no rule of it does, or are no BPE.
SPACE_AT_THE_START = "prefix on the first part"
WRITTEN = [name for name in FILES if FILES[name]["file"]["model"]["type"] == "BPE"]


def written(name: str, rows: int | None = None, **others: dict[str, Any]) -> tuple[dict[str, Any], Tokenizer]:
    """The keys, and the tokenizer they are of; the end is the token with id 2, the format's for SentencePiece."""
    file = FILES[name]["file"]
    end = next((token["content"] for token in file["added_tokens"] if token["id"] == 2), "<|im_end|>")
    config = {"eos_token": end, **others.pop("tokenizer_config", {})}
    files = {"tokenizer.json": json.dumps(file), "tokenizer_config.json": json.dumps(config)}
    files |= {f"{key}.json": json.dumps(value) for key, value in others.items()}
    truth = Tokenizer.from_hf(files)
    return gguf_tokenizer(files, "qwen2", truth.vocab_size if rows is None else rows)[0], truth


@pytest.mark.parametrize("name", WRITTEN)
def test_ids_are_the_same(name: str) -> None:
    keys, truth = written(name)
    found = Tokenizer.from_gguf(keys)
    assert (found.bos_id, found.eos_ids, found.add_bos) == (truth.bos_id, truth.eos_ids, truth.add_bos)
    texts = [
        text for text in FILES[name]["parsed"] if name != SPACE_AT_THE_START or (text.isalnum() and "ferry" not in text)
    ]
    assert len(texts) > 2  # "ferry" is a token of whole words, which the format has no flag for
    for text in texts:
        ids = truth.encode(text, parse_special=True)
        assert found.encode(text, parse_special=True) == ids, text
        assert found.decode(ids) == truth.decode(ids)


def test_spaces_that_the_format_puts_after_control_tokens_are_warned_of() -> None:
    for name in WRITTEN:
        files = {"tokenizer.json": json.dumps(FILES[name]["file"])}
        warned = gguf_tokenizer(files, "llama", 800)[1]
        assert len(warned) == (name == SPACE_AT_THE_START)


def test_as_many_tokens_as_the_table_has_rows() -> None:
    keys, truth = written("composed", 512)
    assert len(keys["tokenizer.ggml.tokens"]) == len(keys["tokenizer.ggml.token_type"]) == 512
    found = Tokenizer.from_gguf(keys)
    assert found.token_bytes(511) == b"" and found.encode("tea for two") == truth.encode("tea for two")
    keys, _ = written("composed", truth.vocab_size - 1)  # its last token has no row
    assert len(keys["tokenizer.ggml.tokens"]) == truth.vocab_size - 1


def test_templates_and_named_tokens_are_written() -> None:
    templates = [{"name": "default", "template": "{{ bos_token }}a"}, {"name": "tool_use", "template": "b"}]
    keys, _ = written("composed", tokenizer_config={"chat_template": templates, "pad_token": "<|im_end|>"})
    assert (keys["tokenizer.chat_template"], keys["tokenizer.chat_template.tool_use"]) == ("{{ bos_token }}a", "b")
    pad = keys["tokenizer.ggml.padding_token_id"]
    assert keys["tokenizer.ggml.tokens"][pad] == "<|im_end|>"


def test_every_end_is_named() -> None:
    """Two ends that only generation_config.json names."""
    ids = {token["id"] for token in FILES["composed"]["file"]["added_tokens"] if not token["special"]}
    assert len(ids) == 2
    keys, truth = written("composed", generation_config={"eos_token_id": sorted(ids)})
    assert ids < Tokenizer.from_gguf(keys).eos_ids == truth.eos_ids


def test_what_has_no_form_is_refused() -> None:
    """A unigram, and words cut in a way that no kind of the format has."""
    with pytest.raises(UnsupportedModelError, match=r"no tokenizer of the GGUF format gives the ids"):
        written("unigram")
    file = {**FILES["composed"]["file"], "pre_tokenizer": {"type": "Whitespace"}}
    with pytest.raises(UnsupportedModelError, match=r"no tokenizer of the GGUF format gives the ids"):
        gguf_tokenizer({"tokenizer.json": json.dumps(file)}, "qwen2", 400)
