"""SentencePiece vocabularies against the ids of `sentencepiece` itself, and what a damaged one does."""

import base64
import json
import random
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from twostroke.errors import InvalidRequestError, ModelFileError
from twostroke.text.detokenizer import Detokenizer
from twostroke.text.piece_merger import PieceMerger
from twostroke.text.tokenizer import Tokenizer

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "sentencepiece.json").read_text("utf-8"))
MODELS = list(GOLDEN["models"])


def metadata(model: str, **changes: object) -> dict[str, object]:
    """The GGUF keys of a golden model, with some changed, or left out when None."""
    golden = GOLDEN["models"][model]
    keys: dict[str, object] = dict(golden["keys"])
    if golden["charsmap"]:
        keys["precompiled_charsmap"] = list(base64.b64decode(GOLDEN["charsmap"]))
    keys |= changes
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {model: Tokenizer.from_gguf(metadata(model)) for model in MODELS}


@pytest.mark.parametrize("model", MODELS)
def test_ids_are_those_of_sentencepiece(tokenizers: dict[str, Tokenizer], model: str) -> None:
    golden = GOLDEN["models"][model]
    assert len(golden["ids"]) > 55
    wrong = {t: (i, tokenizers[model].encode(t)) for t, i in golden["ids"].items() if tokenizers[model].encode(t) != i}
    assert not wrong


@pytest.mark.parametrize("model", ["bpe", "bpe-runs", "bpe-unused", "bpe-equal", "unigram-bytes"])
def test_text_comes_back(tokenizers: dict[str, Tokenizer], model: str) -> None:
    tokenizer = tokenizers[model]
    for text, expected in GOLDEN["models"][model]["decoded"].items():
        assert tokenizer.decode(tokenizer.encode(text)) == expected
        assert expected == text.replace("\u2581", " ")


def test_six_tabs_are_one_piece_and_no_space_is_invented(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["bpe-runs"]
    ids = tokenizer.encode("\t\t\t\t\t\ttest")
    assert tokenizer.token_text(ids[0]) == "\t" * 6
    assert tokenizer.decode(ids) == "\t\t\t\t\t\ttest"


def test_text_after_an_added_token_takes_a_space_where_the_file_says_so(tokenizers: dict[str, Tokenizer]) -> None:
    with_prefix, without = tokenizers["bpe"], Tokenizer.from_gguf(metadata("bpe", add_space_prefix=False))
    assert with_prefix.encode("<s>G", parse_special=True) == [1, *with_prefix.encode("G")]
    assert without.encode("<s>G", parse_special=True) == [1, *without.encode("G")]
    assert with_prefix.encode("G") == without.encode(" G") != without.encode("G")
    assert with_prefix.decode(without.encode(" G")) == "G"
    assert without.decode(without.encode(" G")) == " G"


def test_defaults_of_a_file_without_keys() -> None:
    keys = dict.fromkeys(("bos_token_id", "eos_token_id", "unknown_token_id", "add_bos_token", "add_space_prefix"))
    tokenizer = Tokenizer.from_gguf(metadata("bpe", **keys))
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos) == (1, {2}, True)
    assert tokenizer.encode("G")[1:] == Tokenizer.from_gguf(metadata("bpe")).encode("G")


@pytest.mark.parametrize("model", MODELS)
def test_control_and_byte_tokens_are_plain_text_unless_parsed(tokenizers: dict[str, Tokenizer], model: str) -> None:
    tokenizer = tokenizers[model]
    unknown = GOLDEN["models"][model]["keys"]["unknown_token_id"]
    for text in ("<s>", "</s>", "a</s>b", "<0x41>"):
        ids = tokenizer.encode(text)
        assert not any(tokenizer.is_special(token_id) and token_id != unknown for token_id in ids)
        assert not any(tokenizer.token_text(token_id) == "<0x41>" for token_id in ids)
    assert 2 in tokenizer.encode("a</s>b", parse_special=True)


@pytest.mark.parametrize("continues", [False, True])
def test_a_stream_strips_one_space_at_most(tokenizers: dict[str, Tokenizer], continues: bool) -> None:
    tokenizer = tokenizers["bpe"]
    spaces = [token_id for token_id in range(tokenizer.vocab_size) if tokenizer.token_bytes(token_id) == b" "]
    ids = [1, spaces[0], *tokenizer.encode("ferry"), *tokenizer.encode("é🚢")]
    detokenizer = Detokenizer(tokenizer, continues=continues)
    streamed = "".join([*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()])
    assert streamed == (" " if continues else "") + tokenizer.decode(ids) == " " * (1 + continues) + "ferry é🚢"


def test_streams_equal_one_shot_for_any_ids(tokenizers: dict[str, Tokenizer]) -> None:
    rng = random.Random(4)
    for model in MODELS:
        tokenizer = tokenizers[model]
        detokenizer = Detokenizer(tokenizer)
        for _ in range(300):
            ids = rng.choices(range(tokenizer.vocab_size), k=rng.randrange(9))
            pieces = [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]
            assert "".join(pieces) == tokenizer.decode(ids)


def slow_merge(scores: dict[str, float], text: str) -> list[str]:
    """The definition: join the best-scored neighbours, the leftmost of equals, until none are left."""
    symbols = list(text)
    while True:
        pairs = [(-scores[a + b], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        if not pairs:
            return symbols
        _, index = min(pairs)
        symbols[index : index + 2] = ["".join(symbols[index : index + 2])]


def test_merging_is_its_definition() -> None:
    rng = random.Random(9)
    for _ in range(300):
        words = ["".join(rng.choices("abc\u2581", k=rng.randrange(1, 6))) for _ in range(20)]
        scores = {word: float(rng.randrange(-6, 0)) for word in words}
        text = "".join(rng.choices("abcd\u2581", k=30))
        assert PieceMerger(scores).merge(text) == slow_merge(scores, text), (scores, text)


@pytest.mark.parametrize("unit", ["a", "ab", " ", "the ferry ", "\t", "早上"])
def test_time_is_bounded_on_long_repetitions(tokenizers: dict[str, Tokenizer], unit: str) -> None:
    for model in MODELS:
        start = time.thread_time()
        tokenizers[model].encode(unit * (100_000 // len(unit)))
        assert time.thread_time() - start < 5  # quadratic time would be minutes


def test_the_first_bytes_of_a_cut_character_are_refused_in_one_line(tokenizers: dict[str, Tokenizer]) -> None:
    cut = "日".encode()[:2]
    with pytest.raises(InvalidRequestError, match="not UTF-8 at byte 1"):
        tokenizers["bpe"].encode(b"a" + cut)
    assert tokenizers["bpe"].encode("日".encode()) == tokenizers["bpe"].encode("日")


NUM_TOKENS = len(GOLDEN["models"]["bpe"]["keys"]["tokens"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scores", None),
        ("scores", [0.0] * (NUM_TOKENS - 1)),
        ("scores", [float("nan")] * NUM_TOKENS),
        ("scores", [float("inf")] * NUM_TOKENS),
        ("scores", ["1"] * NUM_TOKENS),
        ("add_space_prefix", 1),
        ("remove_extra_whitespaces", "yes"),
        ("unknown_token_id", NUM_TOKENS),
        ("precompiled_charsmap", [1, 2, 3]),
        ("precompiled_charsmap", [300] * 40),
        ("precompiled_charsmap", "text"),
        ("precompiled_charsmap", [0, 0, 0, 0] + [97] * 300),
    ],
)
def test_a_malformed_key_is_named(key: str, value: object) -> None:
    with pytest.raises(ModelFileError, match=rf"tokenizer\.ggml\.{key}"):
        Tokenizer.from_gguf(metadata("bpe", **{key: value}))


def test_a_damaged_table_of_replacements_is_one_clear_error() -> None:
    table = base64.b64decode(GOLDEN["charsmap"])
    rng = random.Random(2)
    for _ in range(200):
        damaged = bytearray(table)
        for _ in range(rng.randrange(1, 20)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            Tokenizer.from_gguf(metadata("unigram", precompiled_charsmap=list(damaged))).encode("ﬁn\u00a0½ e\u0301")
        except (ModelFileError, InvalidRequestError):
            continue


def test_phi3_control_tokens_take_the_white_space_after_them() -> None:
    keys = metadata("bpe", add_space_prefix=False)
    phi3 = Tokenizer.from_gguf({**keys, "general.name": "Phi-3 mini"})
    other = Tokenizer.from_gguf({**keys, "general.name": "Ferry"})
    assert phi3.encode("</s> \n G", parse_special=True) == [2, *other.encode("G")]
    assert phi3.encode("<s> G", parse_special=True) == [1, *other.encode(" G")]
    assert other.encode("</s> \n G", parse_special=True) == [2, *other.encode(" \n G")]
