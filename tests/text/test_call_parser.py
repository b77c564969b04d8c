import json
import random

import pytest
from tests.text.answers import (
    SCHEMAS,
    TEMPLATES,
    TWO_CALLS,
    calls,
    content,
    read,
    reader_of,
    tokenizer_with,
    vocabularies,
)

from twostroke.text.answer.events import CallEnded, CallStarted, merged
from twostroke.text.answer.marks import Mark
from twostroke.text.answer_format import AnswerFormat
from twostroke.text.answer_reader import AnswerReader
from twostroke.text.tools.call_parser import CallParser

PLAIN = tokenizer_with([])


@pytest.mark.parametrize("name", TEMPLATES)
def test_two_calls_are_read_in_every_format(name: str) -> None:
    form = AnswerFormat.of(TEMPLATES[name])
    assert form.tools.name == name
    for tokenizer in vocabularies(form):
        events = read(reader_of(name, tokenizer), tokenizer, TWO_CALLS[name])
        assert calls(events) == [("add", '{"a": 1}'), ("now", "{}")]
        assert content(events) == ""
        starts = [event for event in events if isinstance(event, CallStarted)]
        assert [start.index for start in starts] == [0, 1]
        assert len({start.id for start in starts}) == 2
        assert [event.index for event in events if isinstance(event, CallEnded)] == [0, 1]


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "harmony"])
def test_how_a_text_is_cut_makes_no_difference(name: str) -> None:
    form = AnswerFormat.of(TEMPLATES[name]).tools
    text = f"One moment. é\n{TWO_CALLS[name]}\n"
    marks = sorted(form.marks, key=len, reverse=True)
    draw = random.Random(name)
    results = set()
    for size in (1, 2, 3, 7, 10_000):
        parser = CallParser(form, SCHEMAS, lambda _: "id")
        events = []
        position = 0
        while position < len(text):
            found = next((mark for mark in marks if text.startswith(mark, position)), None)
            ahead = [at for mark in marks if (at := text.find(mark, position + 1)) > 0]
            length = len(found) if found else min(draw.randint(1, size), *(at - position for at in ahead), len(text))
            piece = text[position : position + length]
            events += parser.push(Mark(piece) if found else piece)
            position += length
        results.add(tuple(merged(events + parser.finish())))
    assert len(results) == 1


def test_text_that_only_looks_like_a_call_comes_out_as_it_is() -> None:
    for name in TEMPLATES:
        if name == "harmony":
            continue
        form = AnswerFormat.of(TEMPLATES[name]).tools
        for begin in (*form.begins, "{", "[", '{"name": "add"', '{"a": 1}', "<tool", "```json\n{}\n```"):
            for text in (begin, f"Use {begin} so.", f" \n{begin} \nnot a call\n{begin}", f"{begin}{{]"):
                if calls(events := read(reader_of(name, PLAIN), PLAIN, text)):
                    continue  # a name is there, and it is a call
                if text.endswith('{"name": "add"') or any(mark in text for mark in form.passed):
                    continue
                assert content(events) == text, (name, text)


def test_letters_of_a_mark_that_is_a_token_are_text() -> None:
    tokenizer = tokenizer_with(["<tool_call>", "</tool_call>"])
    reader = reader_of("hermes", tokenizer)
    text = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
    ids = [token_id for char in text for token_id in tokenizer.encode(char)]
    events = [event for token_id in ids for event in reader.push(token_id)] + reader.finish()
    assert content(events) == text
    assert reader.num_calls == 0


@pytest.mark.parametrize("end", range(len(TWO_CALLS["hermes"])))
def test_arguments_that_are_cut_off_are_as_written_and_no_json(end: int) -> None:
    whole = '<tool_call>\n{"name": "add", "arguments": {"a": 12, "note": "x} \\" {"}}\n</tool_call>'
    events = read(reader_of("hermes", PLAIN), PLAIN, whole[:end])
    arguments = '{"a": 12, "note": "x} \\" {"}'
    begin = whole.index(arguments)
    named = end >= whole.index('"add"') + len('"add"')
    assert calls(events) == ([("add", whole[begin : min(end, begin + len(arguments))])] if named else [])
    assert any(isinstance(event, CallEnded) for event in events) == (end >= begin + len(arguments))


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "harmony"])
def test_no_cut_makes_arguments_whole(name: str) -> None:
    for end in range(len(TWO_CALLS[name])):
        events = read(reader_of(name, PLAIN), PLAIN, TWO_CALLS[name][:end])
        num_ended = sum(isinstance(event, CallEnded) for event in events)
        for _, arguments in calls(events)[num_ended:]:
            with pytest.raises(ValueError):
                json.loads(arguments)
        for _, arguments in calls(events)[:num_ended]:
            json.loads(arguments)


def test_arguments_before_the_name_or_in_a_string_or_missing() -> None:
    for written, expected in (
        ('{"arguments": {"a": 1}, "name": "add"}', '{"a": 1}'),
        ('{"name": "add", "arguments": "{\\"a\\": 1}"}', '{"a": 1}'),
        ('{"name": "add"}', "{}"),
        ('{"name": "add", "arguments": null}', "{}"),
        ('{"id": 7, "name": "add", "arguments": {"a": [1, {"b": "]}"}]}, "more": [1]}', '{"a": [1, {"b": "]}"}]}'),
        ('{"name": "add", "arguments": {"note": "</tool_call>"}}', '{"note": "</tool_call>"}'),
    ):
        events = read(reader_of("hermes", PLAIN), PLAIN, f"<tool_call>\n{written}\n</tool_call> Done.")
        assert calls(events) == [("add", expected)]
        assert content(events) == "Done."


def test_the_types_of_tagged_values_are_the_schemas() -> None:
    text = (
        "<tool_call>\n<function=put>\n<parameter=text>\n12\n</parameter>\n<parameter=count>\n12\n</parameter>\n"
        "<parameter=flags>\n[true, null]\n</parameter>\n<parameter=either>\nyes\n</parameter>\n"
        '<parameter=code>\nif a < b:\n    print("<b>")\n</parameter>\n</function>\n</tool_call>'
    )
    schema = {
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "flags": {"type": "array"},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        }
    }
    form = AnswerFormat.of(TEMPLATES["qwen3-coder"])
    events = read(AnswerReader(form, PLAIN, schemas={"put": schema}), PLAIN, text)
    [(name, arguments)] = calls(events)
    assert name == "put"
    assert json.loads(arguments) == {
        "text": "12",
        "count": 12,
        "flags": [True, None],
        "either": "yes",
        "code": 'if a < b:\n    print("<b>")',
    }


def test_json_that_names_no_tool_is_an_answer() -> None:
    for name in ("llama3", "generic", "hermes"):
        for text in (
            "```json\n[1, 2]\n```",
            "```\n{}\n```\n",
            '```json\n{"name": "Ada"}\n```',
            "``",
            "```js",
            "\n{{1}}",
            '{"name": "Ada", "parameters": {}}',
            '{"name": "add", "age": 3}',
            '{"name": "now"}',
            '[{"x": 1}]',
            '{"name": 3}',
        ):
            events = read(reader_of(name, PLAIN), PLAIN, text)
            assert (content(events), calls(events)) == (text, []), text


def test_json_that_names_a_tool_is_a_call_without_marks_too() -> None:
    call = '{\n  "name": "add",\n  "arguments": {\n    "a": 1\n  }\n}'
    for text in (call, f"```json\n{call}\n```", f"\n```\n{call}\n```\n", f"{{{call}}}", f"[{call}]", f"{call}\n{call}"):
        events = read(reader_of("hermes", PLAIN), PLAIN, text)
        assert set(calls(events)) == {("add", '{\n    "a": 1\n  }')}, text
        assert content(events) == ""
    events = read(reader_of("hermes", PLAIN), PLAIN, f"Like this:\n{call}")
    assert (content(events), calls(events)) == (f"Like this:\n{call}", [])


def test_both_spellings_of_mistral() -> None:
    for name in ("mistral", "mistral-args"):
        for text in (TWO_CALLS["mistral"], TWO_CALLS["mistral-args"]):
            events = read(reader_of(name, PLAIN), PLAIN, text)
            assert calls(events) == [("add", '{"a": 1}'), ("now", "{}")]
            assert all(len(event.id) == 9 for event in events if isinstance(event, CallStarted))


def test_without_tools_nothing_is_a_call() -> None:
    reader = AnswerReader(AnswerFormat.of(TEMPLATES["hermes"]), PLAIN)
    assert content(read(reader, PLAIN, TWO_CALLS["hermes"])) == TWO_CALLS["hermes"]


def test_characters_of_several_tokens_stay_whole_in_content_and_arguments() -> None:
    text = 'Sí 🎉<tool_call>\n{"name": "add", "arguments": {"note": "日本 🎉"}}\n</tool_call>'
    events = read(reader_of("hermes", PLAIN), PLAIN, text)
    assert content(events) == "Sí 🎉"
    assert calls(events) == [("add", '{"note": "日本 🎉"}')]
