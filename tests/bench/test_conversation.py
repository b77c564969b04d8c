"""Made-up prompts and datasets."""

import json
from pathlib import Path

import pytest

from twostroke.bench.config import LoadTestConfig
from twostroke.bench.conversation import Dataset, MadeUp, Scale
from twostroke.bench.words import WORDS
from twostroke.errors import InvalidRequestError

URL = "http://127.0.0.1:1"
EXACT = Scale(WORDS, 1.0, 10, "test")


def texts(source: MadeUp, count: int) -> list[str]:
    return [source.conversation(index).turns[0].messages[0]["content"] for index in range(count)]


def test_prompts_have_their_length_and_all_begin_differently() -> None:
    found = texts(MadeUp(LoadTestConfig(URL, prompt_tokens="200"), EXACT, 5), 200)
    assert {len(text.split()) for text in found} == {190}
    assert len({" ".join(text.split()[:8]) for text in found}) == 200


def test_prompts_depend_on_seed_and_index_alone() -> None:
    config = LoadTestConfig(URL)
    one, other = MadeUp(config, EXACT, 5), MadeUp(config, EXACT, 5)
    assert other.conversation(7) == one.conversation(7)
    assert MadeUp(config, EXACT, 6).conversation(7) != one.conversation(7)


def test_a_shared_prefix_is_that_share_and_no_more() -> None:
    first, second = (
        text.split() for text in texts(MadeUp(LoadTestConfig(URL, prompt_tokens="210", shared_prefix=0.6), EXACT, 5), 2)
    )
    assert first[:120] == second[:120]
    assert first[120:130] != second[120:130]
    assert (len(first), len(second)) == (200, 200)


def test_all_shared_is_the_same_prompt() -> None:
    assert len(set(texts(MadeUp(LoadTestConfig(URL, prompt_tokens="60", shared_prefix=1.0), EXACT, 5), 4))) == 1


def test_a_scale_turns_tokens_into_words() -> None:
    assert Scale(WORDS, 1.25, 30, "test").num_words(1030) == 800
    assert Scale(WORDS, 1.0, 30, "test").num_words(5) == 1


def test_turns_are_new_text_each() -> None:
    turns = (
        MadeUp(LoadTestConfig(URL, turns=3, prompt_tokens="50", output_tokens="7-9"), EXACT, 5).conversation(0).turns
    )
    assert len({turn.messages[0]["content"] for turn in turns}) == 3
    assert all(7 <= (turn.output_tokens or 0) <= 9 for turn in turns)


def dataset(tmp_path: Path, *lines: object) -> Dataset:
    path = tmp_path / "data.jsonl"
    path.write_text("\n\n".join(json.dumps(line) for line in lines), "utf-8")
    return Dataset(path, "40")


def test_a_dataset_in_all_its_forms(tmp_path: Path) -> None:
    system, ask, reply, more = (
        {"role": role, "content": role + "!"} for role in ("system", "user", "assistant", "user")
    )
    source = dataset(
        tmp_path,
        {"messages": [system, ask, reply, more], "max_tokens": 5},
        {"prompt": "Once"},
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]},
        {"body": {"messages": [ask, ask], "max_tokens": 6}},
    )
    first, second, third, fourth, again = (source.conversation(index).turns for index in range(5))
    assert [turn.messages for turn in first] == [(system, ask), (reply, more)]
    assert [turn.output_tokens for turn in first] == [5, 5]
    assert (second[0].messages, second[0].output_tokens) == (({"role": "user", "content": "Once"},), 40)
    assert [turn.messages for turn in third] == [({"role": "user", "content": "Hi"},)]
    assert [len(turn.messages) for turn in fourth] == [2]
    assert again == first


def test_calls_of_tools_are_sent_as_they_are_and_their_results_answered(tmp_path: Path) -> None:
    ask = {"role": "user", "content": "What is 2 + 2?"}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "add"}}]}
    result = {"role": "tool", "content": "4", "tool_call_id": "a"}
    source = dataset(tmp_path, {"messages": [ask, call, result], "max_tokens": None, "output_tokens": 7})
    turns = source.conversation(0).turns
    assert [turn.messages for turn in turns] == [(ask,), (call, result)]
    assert [turn.output_tokens for turn in turns] == [7, 7]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"messages": []}',
        '{"messages": [3]}',
        '{"messages": [{"role": "user", "content": null}]}',
        '{"messages": [{"role": "assistant", "content": "of nobody\'s"}]}',
        '{"prompt": ""}',
        *(f'{{"prompt": "x", "max_tokens": {bound}}}' for bound in ("true", "0", "-1", "2.5", '"9"')),
        "[" * 50_000,
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"prompt": "x"}\n' + line, "utf-8")
    with pytest.raises(InvalidRequestError, match=r"data\.jsonl: line 2"):
        Dataset(path, None)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n", "utf-8")
    with pytest.raises(InvalidRequestError, match="no conversation"):
        Dataset(tmp_path / "empty.jsonl", None)
    with pytest.raises(InvalidRequestError, match=r"missing\.jsonl: No such file"):
        Dataset(tmp_path / "missing.jsonl", None)
