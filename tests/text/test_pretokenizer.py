"""How each kind of pre-tokenizer cuts a text that tells them apart, and that none takes long over any."""

import time

import pytest
from tests.text.byte_vocabulary import metadata

from twostroke.text.pretokenizer import PRE_TOKENIZER_KINDS, pre_tokenizer_kind
from twostroke.text.tokenizer import Tokenizer

TEXT = "I'LL go 1234 ¿no?/\n\n it's gro\u0308ße ü½ABCdef a,b 日本 x"
# Pieces are set apart by a bar.
PIECES = {
    "gpt-2": "I|'|LL| go| 1234| ¿|no|?/|\n\n| it|'s| gro|\u0308|ße| ü|½|ABCdef| a|,|b| 日本| x",
    "starcoder": "I|'|LL| go| |1|2|3|4| ¿|no|?/|\n\n| it|'s| gro|\u0308|ße| ü|½|ABCdef| a|,|b| 日本| x",
    "dbrx": "I|'LL| go| |123|4| ¿|no|?/\n\n| it|'s| gro|\u0308ße| ü|½|ABCdef| a|,b| 日本| x",
    "stablelm2": "I|'LL| go| |1|2|3|4| ¿|no|?/\n\n| it|'s| gro|\u0308ße| ü|½|ABCdef| a|,b| 日本| x",
    "qwen35": "I|'LL| go| |1|2|3|4| ¿|no|?/\n\n| it|'s| gro\u0308ße| ü|½|ABCdef| a|,b| 日本| x",
    "gpt-4o": "I'LL| go| |123|4| ¿|no|?/\n\n| it's| gro\u0308ße| ü|½|ABCdef| a|,b| 日本| x",
    "tekken": "I|'LL| go| |1|2|3|4| ¿|no|?/\n\n| it|'s| gro\u0308ße| ü|½|ABCdef| a|,b| 日本| x",
    "tiny_aya": "I'LL| go| |1|234| ¿|no|?/\n\n| it's| gro\u0308ße| ü|½|ABCdef| a|,b| 日本| x",
    "deepseek-v3": "I|'LL| go| |123|4| ¿|no|?/\n\n| it|'s| gro\u0308ße| ü|½|ABCdef| a|,b| |日本| x",
    "deepseek-llm": "I|'|LL| go| |1|2|3|4| ¿|no|?/|\n|\n| it|'|s| gro|\u0308|ß|e| ü|½|ABCdef| a|,|b| |日本| x",
    "deepseek-coder": "I|'|LL| go| |1|2|3|4| ¿|no|?/|\n|\n| it|'|s| gro|\u0308|ße| ü|½|ABCdef| a|,|b| |日本| x",
    "bloom": "I'LL| go| 1234| ¿no|?|/|\n\n| it's| gro\u0308ße| ü½ABCdef| a|,|b| 日本| x",
    "viking": "I'LL| go| |1|2|3|4| ¿no|?|/|\n\n| it's| gro\u0308ße| ü|½|ABCdef| a|,|b| 日本| x",
    "bailingmoe": "I|'LL| go| |1|2|3|4| ¿|no|?/\n\n| it|'s| gro|\u0308ße| ü|½|ABCdef| a|,b| 日本| x",
    "seed-coder": "I|'LL| go| |1|2|3|4| ¿|no|?/|\n\n| it|'s| gro|\u0308ße| ü|½|ABCdef| a|,b| 日本| x",
    "exaone-moe": "I|'LL| go| |1|2|3|4| ¿|no|?/\n|\n| it|'s| gro\u0308ße ü|½|ABCdef a|,b 日本 x",
    "minicpm5": "I|'LL| go| |123|4| ¿|no|?/\n\n| it|'s| gro|\u0308ße| ü|½|ABCdef| a|,b| 日本| x",
}


@pytest.mark.parametrize("kind", PIECES)
def test_text_is_cut_as_the_family_cuts_it(kind: str) -> None:
    pieces = pre_tokenizer_kind(kind).pre_tokenizer().pre_tokenize_str(TEXT)
    assert "|".join(TEXT[start:end] for _, (start, end) in pieces) == PIECES[kind]


def test_falcon_sees_digits_among_the_spelled_bytes() -> None:
    pieces = pre_tokenizer_kind("falcon").pre_tokenizer().pre_tokenize_str("ü 1234,,`x")
    assert [piece for piece, _ in pieces] == ["Ã", "¼", "Ġ", "123", "4", ",,`", "x"]


@pytest.mark.parametrize("kind", PRE_TOKENIZER_KINDS)
def test_no_piece_is_lost_and_no_text_takes_long(kind: str) -> None:
    pre_tokenizer = pre_tokenizer_kind(kind).pre_tokenizer()
    start = time.thread_time()
    for unit in (" ", "a", "1", "!", "\n", "a ", "a1", "\u0308", "日", "\r\n ", "'s"):
        text = unit * 2000
        spelled = "".join(piece for piece, _ in pre_tokenizer.pre_tokenize_str(text))
        assert len(spelled) == len(text.encode())
    assert time.thread_time() - start < 10


def test_german_with_composed_and_combining_characters() -> None:
    """DeepSeek takes text as it comes, Qwen composes it first; both keep a word whole."""
    for kind, same in (("deepseek-v3", False), ("qwen35", True)):
        tokenizer = Tokenizer.from_gguf(metadata(pre=kind))
        composed, combining = tokenizer.encode("Größe"), tokenizer.encode("Gro\u0308ße")
        assert (composed == combining) is same
        assert tokenizer.decode(composed) == "Größe"
        assert tokenizer.decode(combining) == ("Größe" if same else "Gro\u0308ße")
        pieces = pre_tokenizer_kind(kind).pre_tokenizer().pre_tokenize_str("eine Gro\u0308ße")
        assert len(pieces) == 2
