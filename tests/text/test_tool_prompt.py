import json

from tests.text.answers import ADD, calls, read, reader_of, tokenizer_with

from twostroke.text.tools.families import DEEPSEEK_V31, GENERIC
from twostroke.text.tools.tool_prompt import with_arguments, with_tools_told

CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "2", "tool_call_id": "call_1"},
]


def test_a_template_without_tools_is_told_of_them_in_text() -> None:
    system, user, call, result = with_tools_told(CHAT, [ADD], GENERIC)
    assert system["content"].startswith("Be brief.\n\n")
    assert json.dumps(ADD.template_form()) in system["content"]
    assert user == CHAT[1]
    assert call["role"] == "assistant"
    assert "tool_calls" not in call
    tokenizer = tokenizer_with([])
    assert calls(read(reader_of("generic", tokenizer), tokenizer, call["content"])) == [("add", '{"a": 1}')]
    assert result == {"role": "user", "content": "<tool_response>\n2\n</tool_response>"}
    assert [message["role"] for message in with_tools_told(CHAT[1:2], [ADD], GENERIC)] == ["system", "user"]
    assert with_tools_told(CHAT[:2], [], GENERIC) == CHAT[:2]


def test_a_template_that_knows_calls_but_shows_no_tools_is_told_of_them_in_its_own_form() -> None:
    told = with_tools_told(CHAT, [ADD], DEEPSEEK_V31)
    assert "<｜tool▁call▁begin｜><function-name><｜tool▁sep｜><args-json-object>" in told[0]["content"]
    assert told[1:] == CHAT[1:]


def test_arguments_of_earlier_calls_as_templates_want_them() -> None:
    def arguments(given: object, *, as_objects: bool) -> object:
        call = {**CALL, "function": {"name": "add", "arguments": given}}
        [message] = with_arguments([{"role": "assistant", "tool_calls": [call]}], as_objects=as_objects)
        return message["tool_calls"][0]["function"]["arguments"]

    assert arguments('{"a": 1}', as_objects=True) == {"a": 1}
    assert arguments("", as_objects=True) == {}
    assert arguments('{"a": ', as_objects=True) == '{"a": '
    assert arguments("[1]", as_objects=True) == "[1]"
    assert arguments({"a": "é"}, as_objects=False) == '{"a": "é"}'
