"""Tools through the server: calls that must be are, in the form the API has, streamed as they come."""

import json
from itertools import pairwise
from typing import Any

import pytest
from tests.server.running import RunningServer

from twostroke import LLM

CHAT = "/v1/chat/completions"
DRAW: dict[str, Any] = {"temperature": 1.0, "seed": 11, "max_tokens": 400}
MESSAGES = [{"role": "user", "content": "the rain"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "maxLength": 6}, "days": {"enum": [1, 2]}},
            "required": ["place", "days"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
NAMED = {"type": "function", "function": {"name": "clock"}}


def test_a_call_that_is_required_is_made(server: RunningServer) -> None:
    body = server.post(
        CHAT, messages=MESSAGES, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, **DRAW
    )
    choice = body.json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    [call] = choice["message"]["tool_calls"]
    assert call["type"] == "function" and call["id"].startswith("call_")
    assert call["function"]["name"] == "weather"
    arguments = json.loads(call["function"]["arguments"])
    assert set(arguments) == {"place", "days"} and arguments["days"] in (1, 2)


def test_the_function_that_is_named_is_called(server: RunningServer) -> None:
    body = server.post(CHAT, messages=MESSAGES, tools=[WEATHER, CLOCK], tool_choice=NAMED, **DRAW).json()
    [call] = body["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "clock" and json.loads(call["function"]["arguments"]) == {}


@pytest.mark.parametrize(("seed", "count"), [(11, 1), (1, 2)])
def test_a_stream_names_each_call_once_and_says_the_same(
    server: RunningServer, tiny: LLM, seed: int, count: int
) -> None:
    """Cases TOL-01 and TOL-03."""
    (end,) = tiny.tokenizer.encode("<|im_end|>", parse_special=True)
    asked = {"messages": MESSAGES, "tools": [WEATHER, CLOCK], "tool_choice": "required", **DRAW, "seed": seed}
    asked["logit_bias"] = {str(end): -100}  # rather another call than the end
    whole = server.post(CHAT, **asked).json()["choices"][0]
    assert len(whole["message"]["tool_calls"]) == count
    chunks = server.stream(CHAT, **asked)
    calls: dict[int, dict[str, str]] = {}
    for chunk in chunks:
        for part in chunk["choices"][0]["delta"].get("tool_calls", []):
            if "id" in part:
                assert part["index"] == len(calls) and part["function"]["arguments"] == ""
                calls[part["index"]] = {"name": part["function"]["name"], "arguments": "", "id": part["id"]}
            else:
                assert "name" not in part["function"] and "type" not in part
                calls[part["index"]]["arguments"] += part["function"]["arguments"]
    assert len({call["id"] for call in calls.values()}) == len(calls)
    told = [call["function"] for call in whole["message"]["tool_calls"]]
    assert [{"name": call["name"], "arguments": call["arguments"]} for call in calls.values()] == told
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]
    assert not any(chunk["choices"][0]["delta"].get("content") for chunk in chunks)


def test_arguments_that_are_cut_off_are_not_whole(server: RunningServer) -> None:
    """Case TOL-05."""
    cut: list[str] = []
    for max_tokens in range(20, 60, 5):
        asked = {**DRAW, "max_tokens": max_tokens}
        body = server.post(CHAT, messages=MESSAGES, tools=[WEATHER], tool_choice="required", **asked).json()
        choice = body["choices"][0]
        assert choice["finish_reason"] == "length"
        cut += [call["function"]["arguments"] for call in choice["message"].get("tool_calls", [])]
        assert "<tool_call>" not in (choice["message"]["content"] or "").replace("<tool_call>\n{", "", 1)
    assert len(cut) > 3 and all(later.startswith(arguments) for arguments, later in pairwise(cut))  # raw, as they came
    for arguments in cut:
        with pytest.raises(ValueError):
            json.loads(arguments)


def test_a_strict_schema_holds_where_calls_are_free(server: RunningServer) -> None:
    strict = {**CLOCK, "function": {**CLOCK["function"], "strict": True}}
    body = server.post(CHAT, messages=MESSAGES, tools=[strict], logit_bias={}, **DRAW).json()
    for call in body["choices"][0]["message"].get("tool_calls", []):
        assert call["function"]["name"] == "clock" and json.loads(call["function"]["arguments"]) == {}


def test_a_chat_with_calls_and_results_is_a_prompt(server: RunningServer) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    history = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]
    with_tools = server.post(CHAT, messages=history, tools=[CLOCK], **DRAW)
    assert with_tools.status_code == 200, with_tools.text
    without = server.post(CHAT, messages=history, tools=[CLOCK], tool_choice="none", **DRAW).json()
    assert without["usage"]["prompt_tokens"] < with_tools.json()["usage"]["prompt_tokens"]
    assert "tool_calls" not in without["choices"][0]["message"]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "'x' is not among tools"),
        ({"tools": [CLOCK, CLOCK]}, "two named 'clock'"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": "no blanks"}}]}, "tools[0].function.name"),
        ({"tools": [CLOCK], "tool_choice": "required", "regex": "a"}, "exclude each other"),
        (
            {
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}],
                "tool_choice": "required",
            },
            "tools[0].function.parameters: the JSON schema keyword 'not'",
        ),
        ({"tools": [CLOCK], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [CLOCK] * 129}, "tools"),
    ],
)
def test_what_cannot_be_is_refused_by_name(server: RunningServer, fields: dict[str, Any], named: str) -> None:
    response = server.post(CHAT, messages=MESSAGES, max_tokens=2, **fields)
    assert response.status_code == 400
    assert named in response.json()["error"]["message"]


def test_stop_strings_are_of_the_content_alone(server: RunningServer) -> None:
    asked = {"messages": MESSAGES, "tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False, **DRAW}
    body = server.post(CHAT, stop=["{", '"'], **asked).json()
    [call] = body["choices"][0]["message"]["tool_calls"]
    json.loads(call["function"]["arguments"])
