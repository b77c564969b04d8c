"""Anthropic's Messages API: blocks and events in its order, the same streamed and whole; its errors in its form."""

import json
from typing import Any

import pytest
from tests.server.running import RunningServer, running
from tests.server.test_responses import events_of

from twostroke import LLM
from twostroke.server.auth import Keys

PATH = "/v1/messages"
ASKED: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 200,
    "temperature": 0,
    "messages": [{"role": "user", "content": "the rain"}],
}
CLOCK = {
    "name": "clock",
    "description": "The time.",
    "input_schema": {"type": "object", "properties": {"h": {"enum": [1, 2]}}, "required": ["h"]},
}


def test_a_text_answered_whole_and_streamed(server: RunningServer) -> None:
    whole = server.post(PATH, **ASKED).json()
    chat = server.chat(temperature=0, max_tokens=200).json()
    assert (whole["type"], whole["role"], whole["model"]) == ("message", "assistant", "tiny")
    text = chat["choices"][0]["message"]["content"]
    assert whole["content"] == [{"type": "text", "text": text}]
    assert whole["stop_reason"] == {"stop": "end_turn", "length": "max_tokens"}[chat["choices"][0]["finish_reason"]]
    usage = whole["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == chat["usage"]["prompt_tokens"]
    assert usage["output_tokens"] == chat["usage"]["completion_tokens"]

    events = events_of(server, PATH, **ASKED)
    names = [event["type"] for event in events]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[2:-3]) == {"content_block_delta"}
    assert events[0]["message"]["content"] == [] and events[0]["message"]["stop_reason"] is None
    assert "".join(event["delta"]["text"] for event in events[2:-3]) == text
    assert events[-2]["delta"]["stop_reason"] == whole["stop_reason"]
    assert events[-2]["usage"]["output_tokens"] == usage["output_tokens"]


def test_a_call_and_its_result(server: RunningServer) -> None:
    asked = {**ASKED, "tools": [CLOCK], "tool_choice": {"type": "tool", "name": "clock"}, "temperature": 1}
    whole = server.post(PATH, **asked).json()
    assert whole["stop_reason"] == "tool_use"
    [block] = whole["content"]
    assert (block["type"], block["name"]) == ("tool_use", "clock")
    assert block["input"]["h"] in (1, 2)
    events = events_of(server, PATH, **asked)
    start = next(event for event in events if event["type"] == "content_block_start")["content_block"]
    assert (start["type"], start["name"], start["input"]) == ("tool_use", "clock", {})
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert {delta["type"] for delta in deltas} == {"input_json_delta"}
    assert json.loads("".join(delta["partial_json"] for delta in deltas))["h"] in (1, 2)
    messages = [
        *ASKED["messages"],
        {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, block]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": block["id"], "content": [{"type": "text", "text": "noon"}]},
                {"type": "text", "text": "and now"},
            ],
        },
    ]
    again = server.post(PATH, **{**asked, "messages": messages, "tool_choice": {"type": "auto"}})
    assert again.status_code == 200, again.text


def test_a_stop_sequence_is_told(server: RunningServer) -> None:
    text = server.post(PATH, **ASKED).json()["content"][0]["text"]
    stop = text[3:6]
    body = server.post(PATH, **ASKED, stop_sequences=[stop, "never there"]).json()
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", stop)
    assert body["content"][0]["text"] == text[: text.index(stop)]
    last = events_of(server, PATH, **ASKED, stop_sequences=[stop])[-2]
    assert last["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": stop}


def test_the_system_message_counts(server: RunningServer) -> None:
    plain = server.post(f"{PATH}/count_tokens", model="tiny", messages=ASKED["messages"]).json()
    told = server.post(f"{PATH}/count_tokens", model="tiny", messages=ASKED["messages"], system="be brief").json()
    assert plain["input_tokens"] == server.chat(max_tokens=1).json()["usage"]["prompt_tokens"]
    assert told["input_tokens"] > plain["input_tokens"]
    blocks = [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]
    same = server.post(f"{PATH}/count_tokens", model="tiny", messages=ASKED["messages"], system=blocks).json()
    assert same == told


def test_an_answer_that_is_begun_goes_on(server: RunningServer) -> None:
    begun = [*ASKED["messages"], {"role": "assistant", "content": "It"}]
    counted = server.post(f"{PATH}/count_tokens", model="tiny", messages=begun).json()["input_tokens"]
    body = server.post(PATH, **{**ASKED, "messages": begun}).json()
    assert body["usage"]["input_tokens"] + body["usage"]["cache_read_input_tokens"] == counted


def test_a_schema_is_kept(server: RunningServer) -> None:
    form = {"type": "json_schema", "schema": {"enum": ["a", "b"]}}
    body = server.post(PATH, **ASKED, output_config={"format": form}).json()
    assert json.loads(body["content"][0]["text"]) in ("a", "b")


def test_arguments_that_are_cut_off_are_named_so(server: RunningServer) -> None:
    asked = {
        **ASKED,
        "tools": [{"name": "f", "input_schema": {"properties": {"text": {"type": "string", "minLength": 99}}}}],
    }
    asked |= {"tool_choice": {"type": "any"}, "temperature": 1, "max_tokens": 60}
    body = server.post(PATH, **asked).json()
    assert body["stop_reason"] in ("max_tokens", "tool_use")
    if body["stop_reason"] == "max_tokens":
        assert set(body["content"][0].get("input", {"INVALID_JSON": ""})) == {"INVALID_JSON"}


@pytest.mark.parametrize(
    ("fields", "status", "kind", "named"),
    [
        ({"model": "claude"}, 404, "not_found_error", "claude"),
        ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, 400, "invalid_request_error", "thinking"),
        ({"mcp_servers": [{}]}, 400, "invalid_request_error", "mcp_servers"),
        ({"service_tier": "fast"}, 400, "invalid_request_error", "service_tier"),
        ({"messages": []}, 400, "invalid_request_error", "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "invalid_request_error", "messages[0]"),
        ({"tool_choice": {"type": "tool"}}, 400, "invalid_request_error", "tool_choice"),
        ({"nonsense": 1}, 400, "invalid_request_error", "nonsense"),
    ],
)
def test_errors_have_the_apis_form(server: RunningServer, fields: Any, status: int, kind: str, named: str) -> None:
    response = server.post(PATH, **{**ASKED, **fields})
    assert response.status_code == status
    error = response.json()
    assert error["type"] == "error" and error["error"]["type"] == kind
    assert named in error["error"]["message"]


def test_the_key_may_come_as_the_api_sends_it(tiny: LLM) -> None:
    with running(tiny, Keys(["secret"])) as server:
        refused = server.post(PATH, **ASKED)
        assert refused.status_code == 401 and refused.json()["error"]["type"] == "authentication_error"
        given = server.client.post(PATH, json={**ASKED, "max_tokens": 1}, headers={"x-api-key": "secret"})
        assert given.status_code == 200
