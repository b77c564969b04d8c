"""Tokenizers built from metadata: ids, special tokens, bytes, and refusals. The real models are in test_oracle.py."""

import random

import numpy as np
import pytest
from tests.text.byte_vocabulary import CONTROL, IDS, MERGED, MERGES, TOKENS, TYPES, metadata

from twostroke.errors import InvalidRequestError, ModelFileError, UnsupportedModelError
from twostroke.text.pretokenizer import pre_tokenizer_kind
from twostroke.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_gguf(metadata())


def random_text(rng: random.Random) -> str:
    """Letters, digits, spaces, line ends, wide characters, and pieces of special tokens."""
    chars = [chr(code) for code in rng.sample(range(0x110000), 40) if not 0xD800 <= code < 0xE000]
    pieces = [
        *chars,
        *"hello 12345\r\n\t'S",
        "  \n",
        "hello",
        " hello",
        "<",
        "<|im_end|>",
        "<s>",
        "<tool>",
        "é",
        "👩‍👧",
    ]
    return "".join(rng.choices(pieces, k=rng.randrange(40)))


def test_merges_in_order_of_rank(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("hello hello") == [MERGED["hello"], MERGED["Ġhello"]]
    assert tokenizer.encode("hhell") == [ord("h"), MERGED["hell"]]
    assert tokenizer.encode("é1234") == [MERGED["Ã©"], MERGED["12"], ord("3"), ord("4")]
    assert tokenizer.encode("") == []


def test_text_comes_back(tokenizer: Tokenizer) -> None:
    rng = random.Random(7)
    for _ in range(300):
        text = random_text(rng)
        plain, parsed = tokenizer.encode(text), tokenizer.encode(text, parse_special=True)
        assert tokenizer.decode(plain) == text
        assert tokenizer.decode(parsed, skip_special=False) == text
        assert not any(tokenizer.is_special(token_id) for token_id in plain)


def test_control_text_is_plain_unless_parsed(tokenizer: Tokenizer) -> None:
    text = "hello<|im_end|>\n"
    assert tokenizer.encode(text) == [MERGED["hello"], *b"<|im_end|>\n"]
    assert tokenizer.encode(text, parse_special=True) == [MERGED["hello"], IDS["<|im_end|>"], ord("\n")]
    assert tokenizer.encode("<|im_end|>>>", parse_special=True) == [IDS["<|im_end|>>"], ord(">")]  # the longest
    assert tokenizer.control_texts() == CONTROL


def test_a_control_token_that_is_a_word_is_plain_too() -> None:
    keys = metadata(pre="llama-bpe", tokens=[*TOKENS, "stop"], token_type=[*TYPES, 3], add_bos_token=False)
    tokenizer = Tokenizer.from_gguf(keys)
    assert tokenizer.encode("stop") == [*b"stop"]
    assert tokenizer.encode("stop", parse_special=True) == [len(TOKENS)]


def test_user_defined_tokens_are_atomic_and_visible(tokenizer: Tokenizer) -> None:
    for parse_special in (False, True):
        assert tokenizer.encode("a<tool>  \n", parse_special=parse_special) == [97, IDS["<tool>"], IDS["  \n"]]
    assert not tokenizer.is_special(IDS["<tool>"])
    assert tokenizer.decode([97, IDS["<tool>"], IDS["<s>"]]) == "a<tool>"
    assert tokenizer.decode([97, IDS["<tool>"], IDS["<s>"]], skip_special=False) == "a<tool><s>"


def test_split_special_joins_to_the_parsed_ids(tokenizer: Tokenizer) -> None:
    text = "<s>hello<tool>12<|im_end|>"
    parts = tokenizer.split_special(text)
    assert parts == [IDS["<s>"], "hello", IDS["<tool>"], "12", IDS["<|im_end|>"]]
    ids = [i for part in parts for i in ([part] if isinstance(part, int) else tokenizer.encode(part))]
    assert ids == tokenizer.encode(text, parse_special=True)


def test_bos_is_added_once() -> None:
    tokenizer, bos = Tokenizer.from_gguf(metadata(add_bos_token=True)), IDS["<s>"]
    assert tokenizer.add_bos
    assert tokenizer.encode("a") == [bos, 97]
    assert tokenizer.encode("a", add_special=False) == [97]
    assert tokenizer.encode("<s>a", parse_special=True) == [bos, 97]
    assert tokenizer.encode("<s>a") == [bos, *b"<s>a"]  # the text of BOS in plain text is not BOS


def test_llama3_adds_bos_and_takes_whole_words() -> None:
    merges = [merge for merge in MERGES if merge != "hell o"]
    keys = {"merges": merges, "add_bos_token": None}
    assert Tokenizer.from_gguf(metadata(pre="llama-bpe", **keys)).encode("hello") == [IDS["<s>"], MERGED["hello"]]
    assert Tokenizer.from_gguf(metadata(pre="gpt-2", **keys)).encode("hello") == [MERGED["hell"], ord("o")]


def test_qwen2_normalises_plain_text() -> None:
    decomposed = "e\u0301"
    assert Tokenizer.from_gguf(metadata(pre="qwen2")).encode(decomposed) == [MERGED["Ã©"]]
    assert Tokenizer.from_gguf(metadata()).encode(decomposed) == list(decomposed.encode())


LLAMA3_PIECES = ["I", "'LL", " pay", " ", "123", "45", " ¿", "no", "?\n\n", " ", " it", "'s"]
PIECES = {
    "gpt-2": ["I", "'", "LL", " pay", " 12345", " ¿", "no", "?", "\n\n ", " it", "'s"],
    "smollm": ["I", "'", "LL", " pay", " ", *"12345", " ¿", "no", "?", "\n\n ", " it", "'s"],
    "llama3": LLAMA3_PIECES,
    "llama-v3": LLAMA3_PIECES,
    "llama-bpe": LLAMA3_PIECES,
    "qwen2": ["I", "'LL", " pay", " ", *"12345", " ¿", "no", "?\n\n", " ", " it", "'s"],
    "deepseek-r1-qwen": ["I", "'LL", " pay", " ", *"12345", " ¿", "no", "?\n\n", " ", " it", "'s"],
    "default": ["I", "'", "LL", " pay", " ", "123", "45", " ", "¿", "no", "?", "\n\n ", " it", "'", "s"],
}


@pytest.mark.parametrize("kind", PIECES)
def test_text_is_cut_as_the_family_cuts_it(kind: str) -> None:
    text = "I'LL pay 12345 ¿no?\n\n  it's"
    pieces = pre_tokenizer_kind(kind).pre_tokenizer().pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in pieces] == PIECES[kind]


def test_ids_and_ends() -> None:
    tokenizer = Tokenizer.from_gguf(metadata(eot_token_id=IDS["<|im_start|>"]))
    assert tokenizer.vocab_size == len(TOKENS)
    assert tokenizer.bos_id == IDS["<s>"]
    assert tokenizer.eos_ids == {IDS["</s>"], IDS["<|im_start|>"], IDS["<|im_end|>"]}
    assert Tokenizer.from_gguf(metadata(bos_token_id=None)).bos_id is None


def test_an_end_token_called_user_defined_is_still_special() -> None:
    types = [4 if token == "<|im_end|>" else kind for token, kind in zip(TOKENS, TYPES, strict=True)]
    tokenizer = Tokenizer.from_gguf(metadata(token_type=types, eos_token_id=IDS["<|im_end|>"]))
    assert tokenizer.is_special(IDS["<|im_end|>"])
    assert IDS["<|im_end|>"] not in tokenizer.encode("<|im_end|>")


def test_types_may_be_an_array_or_absent() -> None:
    text = "<s>hello<tool>"
    expected = Tokenizer.from_gguf(metadata()).encode(text, parse_special=True)
    assert (
        Tokenizer.from_gguf(metadata(token_type=np.array(TYPES, np.int32))).encode(text, parse_special=True) == expected
    )
    untyped = Tokenizer.from_gguf(metadata(token_type=None))
    assert untyped.encode(text, parse_special=True) == [IDS["<s>"], MERGED["hello"], *b"<tool>"]


def test_token_bytes_and_text(tokenizer: Tokenizer) -> None:
    assert [tokenizer.token_bytes(token_id) for token_id in range(256)] == [bytes([byte]) for byte in range(256)]
    assert tokenizer.token_bytes(MERGED["Ã©"]) == "é".encode()
    assert tokenizer.token_text(MERGED["Ġhello"]) == "Ġhello"
    assert tokenizer.token_bytes(IDS["<|im_end|>"]) == b"<|im_end|>"
    assert tokenizer.token_bytes(IDS["  \n"]) == b"  \n"
    assert tokenizer.token_bytes(IDS["[PAD0]"]) == b""
    assert tokenizer.decode([0xC3, 0x28]) == "\ufffd("


@pytest.mark.parametrize("token_id", [-1, len(TOKENS), 2**40])
def test_ids_outside_the_vocabulary_are_refused(tokenizer: Tokenizer, token_id: int) -> None:
    for call in (tokenizer.token_bytes, tokenizer.token_text, tokenizer.is_special, lambda i: tokenizer.decode([i])):
        with pytest.raises(InvalidRequestError, match=f"{token_id} .*{len(TOKENS)}"):
            call(token_id)


def test_a_lone_surrogate_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequestError, match=r"U\+D83D at position 2"):
        tokenizer.encode("ab\ud83d")


@pytest.mark.parametrize("model", ["bert", "rwkv", "plamo2", "unheard-of"])
def test_other_tokenizers_are_refused_by_name(model: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"tokenizer.ggml.model.*'{model}'"):
        Tokenizer.from_gguf(metadata(model=model))


def test_an_unknown_pre_tokenizer_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.ggml\.pre.*'kimi-k2'"):
        Tokenizer.from_gguf(metadata(pre="kimi-k2"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", None),
        ("model", 3),
        ("pre", None),
        ("tokens", None),
        ("tokens", []),
        ("tokens", "abc"),
        ("tokens", [*TOKENS[:-1], 7]),
        ("tokens", [*TOKENS[:-1], TOKENS[5]]),
        ("token_type", TYPES[:-1]),
        ("token_type", [*TYPES[:-1], 9]),
        ("token_type", [*TYPES[:-1], 1.0]),
        ("merges", None),
        ("merges", [*MERGES, "he"]),
        ("merges", [*MERGES, "h e l"]),
        ("merges", [*MERGES, " he"]),
        ("merges", [*MERGES, "h 日本"]),
        ("merges", [*MERGES, "h z"]),
        ("merges", [*MERGES, "< s>"]),
        ("merges", [*MERGES, 5]),
        ("bos_token_id", len(TOKENS)),
        ("bos_token_id", -1),
        ("eos_token_id", "2"),
        ("eos_token_id", True),
        ("eot_token_id", 2**32 - 1),
        ("add_bos_token", 1),
    ],
)
def test_a_malformed_key_is_named(key: str, value: object) -> None:
    with pytest.raises(ModelFileError, match=rf"tokenizer\.ggml\.{key}"):
        Tokenizer.from_gguf(metadata(**{key: value}))


def test_adding_a_bos_that_is_not_there_is_refused() -> None:
    with pytest.raises(ModelFileError, match="bos_token_id is missing"):
        Tokenizer.from_gguf(metadata(add_bos_token=True, bos_token_id=None))
