"""`tokenizer.json` files against the ids the library gives when it reads them whole, and their neighbours' say."""

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from twostroke.errors import InvalidRequestError, ModelFileError, UnsupportedModelError
from twostroke.text.detokenizer import Detokenizer
from twostroke.text.tokenizer import Tokenizer

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "huggingface.json").read_text("utf-8"))
FILES = list(GOLDEN["files"])
BYTES, SPACED = "composed", "prefix on the first part"


def files(name: str, **others: object) -> dict[str, str]:
    """A golden file and its neighbours, by name; `tokenizer` changes parts of the file itself."""
    file = {**GOLDEN["files"][name]["file"], **dict(others.pop("tokenizer", {}))}  # type: ignore[call-overload]
    return {"tokenizer.json": json.dumps(file), **{f"{key}.json": json.dumps(value) for key, value in others.items()}}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {name: Tokenizer.from_hf(files(name)) for name in FILES}


@pytest.mark.parametrize("name", FILES)
def test_ids_are_those_of_the_library(tokenizers: dict[str, Tokenizer], name: str) -> None:
    tokenizer, golden = tokenizers[name], GOLDEN["files"][name]
    assert len(golden["parsed"]) > 55
    assert len(golden["plain"]) > 50
    for text, ids in golden["parsed"].items():
        if tokenizer.add_bos and text.startswith("<s>"):
            assert ids[0] == ids[1]  # the library doubles BOS, we do not
            ids = ids[1:]
        assert tokenizer.encode(text, parse_special=True) == ids, text
    for text, ids in golden["plain"].items():
        assert tokenizer.encode(text, add_special=False) == ids, text


@pytest.mark.parametrize("name", FILES)
def test_text_is_that_of_the_library(tokenizers: dict[str, Tokenizer], name: str) -> None:
    golden = GOLDEN["files"][name]
    for text, ids in golden["parsed"].items():
        assert tokenizers[name].decode(ids, skip_special=False) == golden["decoded"][text]
        assert tokenizers[name].decode(ids) == golden["visible"][text]


@pytest.mark.parametrize("name", FILES)
def test_control_tokens_never_come_out_of_plain_text(tokenizers: dict[str, Tokenizer], name: str) -> None:
    tokenizer, rng = tokenizers[name], random.Random(8)
    unknown = {0} if GOLDEN["files"][name]["file"]["model"].get("unk_token") else set()
    texts = [*tokenizer.control_texts(), *("".join(rng.choices("<s>/|im_endstart unk", k=40)) for _ in range(100))]
    for text in texts:
        ids = tokenizer.encode(text, add_special=False)
        assert not any(tokenizer.is_special(token_id) for token_id in ids if token_id not in unknown)


@pytest.mark.parametrize("name", FILES)
def test_streams_equal_one_shot_for_any_ids(tokenizers: dict[str, Tokenizer], name: str) -> None:
    tokenizer, rng = tokenizers[name], random.Random(4)
    detokenizer = Detokenizer(tokenizer)
    for _ in range(300):
        ids = rng.choices(range(tokenizer.vocab_size), k=rng.randrange(9))
        pieces = [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]
        assert "".join(pieces) == tokenizer.decode(ids)


def test_parts_are_encoded_as_the_whole(tokenizers: dict[str, Tokenizer]) -> None:
    text = "ferry <|im_start|> one<think>two</think> <|im_end|>three<s>four"
    for tokenizer in tokenizers.values():
        whole = tokenizer.encode(text, add_special=False, parse_special=True)
        assert tokenizer.encode_parts(tokenizer.split_special(text)) == whole


def test_visible_tokens_are_one_id_and_stay_in_the_text(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers[BYTES]
    ids = tokenizer.encode("<think>hm</think>")
    assert tokenizer.token_text(ids[0]) == "<think>"
    assert tokenizer.token_text(ids[-1]) == "</think>"
    assert not tokenizer.is_special(ids[0])
    assert tokenizer.decode(ids) == "<think>hm</think>"


def test_a_text_rendered_with_bos_has_one(tokenizers: dict[str, Tokenizer]) -> None:
    for tokenizer in tokenizers.values():
        if tokenizer.add_bos:
            assert tokenizer.encode("<s>The ferry", parse_special=True).count(tokenizer.bos_id) == 1
            assert tokenizer.encode("The ferry")[0] == tokenizer.bos_id


def test_ends_are_the_union_of_every_file() -> None:
    ids = [Tokenizer.from_hf(files(BYTES)).encode(end, parse_special=True)[0] for end in ("</s>", "<|im_end|>")]
    neighbours = {
        "tokenizer_config": {"eos_token": {"content": "</s>"}, "bos_token": "<s>", "add_bos_token": True},
        "generation_config": {"eos_token_id": [7, 9]},
        "config": {"eos_token_id": 11, "text_config": {"eos_token_id": 12}},
    }
    tokenizer = Tokenizer.from_hf(files(BYTES, **neighbours))
    assert tokenizer.eos_ids == {7, 9, 11, 12, *ids}
    assert tokenizer.token_text(tokenizer.bos_id or 0) == "<s>"
    assert tokenizer.encode("")[0] == tokenizer.bos_id
    assert all(tokenizer.is_special(token_id) for token_id in tokenizer.eos_ids)


def test_bos_is_added_as_the_config_says_else_as_the_post_processor_does() -> None:
    assert Tokenizer.from_hf(files(SPACED)).add_bos
    assert not Tokenizer.from_hf(files(SPACED, tokenizer_config={"add_bos_token": False})).add_bos
    assert not Tokenizer.from_hf(files(BYTES)).add_bos
    with pytest.raises(ModelFileError, match="add_bos_token is true"):
        Tokenizer.from_hf(files(BYTES, tokenizer_config={"add_bos_token": True}))


def test_a_directory_is_read_as_its_texts(tmp_path: Path) -> None:
    texts = files(SPACED, generation_config={"eos_token_id": 2})
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for tokenizer in (Tokenizer.from_hf(tmp_path), Tokenizer.from_hf(str(tmp_path))):
        assert tokenizer.encode("The ferry") == Tokenizer.from_hf(texts).encode("The ferry")
    (tmp_path / "config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ModelFileError, match=r"config\.json: not UTF-8 at byte 7"):
        Tokenizer.from_hf(tmp_path)
    (tmp_path / "config.json").write_bytes(b" " * (17 << 20))
    with pytest.raises(ModelFileError, match=r"config\.json: over"):
        Tokenizer.from_hf(tmp_path)


def test_no_tokenizer_is_one_clear_line(tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "nowhere", {}):
        with pytest.raises(ModelFileError, match=r"tokenizer\.json is missing"):
            Tokenizer.from_hf(source)


MODEL = GOLDEN["files"][BYTES]["file"]["model"]
DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
DEEP: dict[str, Any] = {"type": "NFC"}
for _ in range(300):
    DEEP = {"type": "Sequence", "normalizers": [DEEP]}


@pytest.mark.parametrize(
    "changes",
    [
        {"model": None},
        {"model": {**MODEL, "vocab": ["a"]}},
        {"model": {**MODEL, "vocab": {**MODEL["vocab"], "x!": "1"}}},
        {"model": {**MODEL, "vocab": {**MODEL["vocab"], "x!": -1}}},
        {"model": {**MODEL, "vocab": {**MODEL["vocab"], "x!": 2**40}}},
        {"model": {**MODEL, "vocab": {**MODEL["vocab"], "x!": 5}}},
        {"model": {**MODEL, "vocab": {}, "merges": []}, "added_tokens": []},
        {"model": {**MODEL, "merges": "a b"}},
        {"model": {**MODEL, "merges": [["a"]]}},
        {"model": {**MODEL, "merges": ["a b c"]}},
        {"model": {**MODEL, "merges": [["zz", "qq"]]}},
        {"model": {**MODEL, "merges": [[1, 2]]}},
        {"model": {"type": "Unigram", "vocab": [["a", "b"]]}},
        {"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 4}},
        {"added_tokens": {"a": 1}},
        {"added_tokens": [{"id": 1}]},
        {"added_tokens": [{"id": 3, "content": "<s>", "special": True}]},
        {"added_tokens": [{"id": 900, "content": "<s>", "special": "yes"}]},
        {"normalizer": {"type": "Nothing"}},
        {"normalizer": DEEP},
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}},
        {"pre_tokenizer": 7},
        {"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 300}},
        {"normalizer": {"type": "Replace", "pattern": {"Regex": ""}, "content": "b" * 256}},
        {"normalizer": {"type": "Prepend", "prepend": "b" * 300}},
        {"normalizer": {"type": "Sequence", "normalizers": [DOUBLE] * 40}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "?"}},
        {
            "normalizer": {
                "type": "Precompiled",
                "precompiled_charsmap": base64.b64encode(b"\0\0\0\0" + b"b" * 300).decode(),
            }
        },
    ],
)
def test_a_malformed_file_is_one_clear_error(changes: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError, match=r"^tokenizer\.json: .+") as raised:
        Tokenizer.from_hf(files(BYTES, tokenizer=changes))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "nul", "[" * 100_000, '{"a": ' + "9" * 5000 + "}"])
@pytest.mark.parametrize("name", ["tokenizer", "config", "generation_config", "tokenizer_config"])
def test_what_is_not_json_is_one_clear_error(name: str, text: str) -> None:
    with pytest.raises(ModelFileError, match=rf"^{name}\.json: [^\n]+$"):
        Tokenizer.from_hf({**files(BYTES), f"{name}.json": text})


@pytest.mark.parametrize("token_id", [-1, 10**6, "2", True, [1, None, 2.0]])
def test_an_end_outside_the_vocabulary_is_named(token_id: object) -> None:
    with pytest.raises(ModelFileError, match=r"generation_config\.json: eos_token_id"):
        Tokenizer.from_hf(files(BYTES, generation_config={"eos_token_id": token_id}))


@pytest.mark.parametrize("changes", [{"model": {"type": "WordPiece"}}, {"decoder": {"type": "WordPiece"}}])
def test_other_kinds_are_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModelError, match="WordPiece"):
        Tokenizer.from_hf(files(BYTES, tokenizer=changes))


def test_a_lone_surrogate_or_cut_character_is_refused(tokenizers: dict[str, Tokenizer]) -> None:
    for tokenizer in tokenizers.values():
        with pytest.raises(InvalidRequestError, match="surrogate"):
            tokenizer.encode("a\udc80")
        with pytest.raises(InvalidRequestError, match="not UTF-8"):
            tokenizer.encode("日".encode()[:2])


def test_a_pattern_without_end_is_one_clear_error() -> None:
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    tokenizer = Tokenizer.from_hf(files(BYTES, tokenizer={"pre_tokenizer": split}))
    with pytest.raises(InvalidRequestError, match="the tokenizer fails on this text"):
        tokenizer.encode("a" * 5000 + "!")
    assert tokenizer.decode(tokenizer.encode("aa")) == "aa"
