"""The incremental detokenizer against one-shot decoding."""

import random

import pytest
from tests.text.byte_vocabulary import IDS, TOKENS, metadata

from twostroke.errors import InvalidRequestError
from twostroke.text.detokenizer import Detokenizer
from twostroke.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_gguf(metadata())


def pieces_of(detokenizer: Detokenizer, ids: list[int]) -> list[str]:
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


@pytest.mark.parametrize("skip_special", [True, False])
def test_join_equals_one_shot_for_any_ids(tokenizer: Tokenizer, skip_special: bool) -> None:
    rng = random.Random(11)
    detokenizer = Detokenizer(tokenizer, skip_special)
    lead_bytes = [0xC3, 0xE2, 0xF0, 0x9F, 0x80, 0xED, 0xA0]
    for _ in range(2000):
        ids = rng.choices([*range(len(TOKENS)), *lead_bytes * 20], k=rng.randrange(12))
        assert "".join(pieces_of(detokenizer, ids)) == tokenizer.decode(ids, skip_special=skip_special)


def test_a_character_comes_whole_and_at_once(tokenizer: Tokenizer) -> None:
    text = "aé日🚢"
    pieces = pieces_of(Detokenizer(tokenizer), list(text.encode()))
    assert pieces == ["a", "", "é", "", "", "日", "", "", "", "🚢", ""]


def test_bytes_that_prove_invalid_are_replaced(tokenizer: Tokenizer) -> None:
    assert pieces_of(Detokenizer(tokenizer), [0xE6, 0x97, ord("a")]) == ["", "", "\ufffda", ""]
    assert pieces_of(Detokenizer(tokenizer), [0xE6, 0x97]) == ["", "", "\ufffd"]


def test_special_tokens_are_skipped_or_kept(tokenizer: Tokenizer) -> None:
    ids = [0xC3, IDS["</s>"], 0xA9, IDS["<tool>"]]
    assert pieces_of(Detokenizer(tokenizer), ids) == ["", "", "é", "<tool>", ""]
    assert "".join(pieces_of(Detokenizer(tokenizer, skip_special=False), ids)) == "\ufffd</s>\ufffd<tool>"


def test_flush_makes_ready_for_another_stream(tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(tokenizer)
    assert pieces_of(detokenizer, [0xF0, 0x9F]) == ["", "", "\ufffd"]
    assert pieces_of(detokenizer, [0x61]) == ["a", ""]


def test_an_id_outside_the_vocabulary_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequestError, match=str(len(TOKENS))):
        Detokenizer(tokenizer).push(len(TOKENS))
