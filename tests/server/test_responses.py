"""The Responses API: items and events in its order, the same streamed and whole; what it does not do is named."""

import json
from typing import Any

import pytest
from tests.server.running import RunningServer

PATH = "/v1/responses"
DRAW: dict[str, Any] = {"temperature": 1.0, "seed": 11, "max_output_tokens": 300}
CLOCK = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {"h": {"enum": [1, 2]}}}}


def events_of(server: RunningServer, path: str = PATH, **body: Any) -> list[dict[str, Any]]:
    """A stream's events; each is named as its data says, and nothing follows the last."""
    with server.client.stream("POST", path, json={"stream": True, **body}) as response:
        assert response.status_code == 200, response.read()
        blocks = [block for block in response.read().decode().split("\n\n") if block and not block.startswith(":")]
    found = []
    for block in blocks:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def test_a_text_answered_whole_and_streamed(server: RunningServer) -> None:
    whole = server.post(PATH, input="the rain", **DRAW).json()
    assert whole["object"] == "response" and whole["status"] in ("completed", "incomplete")
    [item] = whole["output"]
    assert (item["type"], item["role"], item["content"][0]["type"]) == ("message", "assistant", "output_text")
    chat = server.chat(temperature=1.0, seed=11, max_tokens=300).json()
    assert item["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    usage = whole["usage"]
    assert usage["input_tokens"] == chat["usage"]["prompt_tokens"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]

    events = events_of(server, input="the rain", **DRAW)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    names = [event["type"].removeprefix("response.") for event in events]
    assert names[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert names[-4:] == ["output_text.done", "content_part.done", "output_item.done", whole["status"]]
    assert set(names[4:-4]) == {"output_text.delta"}
    text = "".join(event["delta"] for event in events if event["type"].endswith("output_text.delta"))
    assert text == item["content"][0]["text"] == events[-4]["text"]
    assert events[-1]["response"]["output"][0]["content"] == item["content"]
    assert {event["item_id"] for event in events if "item_id" in event} == {events[2]["item"]["id"]}


def test_a_call_and_its_result(server: RunningServer) -> None:
    asked = {"input": "the rain", "tools": [CLOCK], "tool_choice": {"type": "function", "name": "clock"}, **DRAW}
    whole = server.post(PATH, **asked).json()
    [call] = whole["output"]
    assert (call["type"], call["name"], call["status"]) == ("function_call", "clock", "completed")
    assert json.loads(call["arguments"]).keys() <= {"h"}
    assert whole["status"] == "completed"
    events = events_of(server, **asked)
    names = [event["type"].removeprefix("response.") for event in events]
    assert names[2] == "output_item.added" and events[2]["item"]["name"] == "clock"
    assert names[-3:] == ["function_call_arguments.done", "output_item.done", "completed"]
    arguments = "".join(event["delta"] for event in events if event["type"].endswith("arguments.delta"))
    assert arguments == call["arguments"] == events[-3]["arguments"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "noon"}
    first = {"role": "user", "content": [{"type": "input_text", "text": "the rain"}]}
    again = server.post(PATH, input=[first, call, result], tools=[CLOCK], **DRAW)
    assert again.status_code == 200, again.text


def test_instructions_are_a_system_message(server: RunningServer) -> None:
    told = server.post(PATH, input="the rain", instructions="be brief", **DRAW).json()
    system = {"role": "developer", "content": "be brief"}
    same = server.post(PATH, input=[system, {"role": "user", "content": "the rain"}], **DRAW).json()
    assert told["output"][0]["content"] == same["output"][0]["content"]
    assert told["instructions"] == "be brief"


def test_a_format_is_kept(server: RunningServer) -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"enum": ["a", "b"]}, "strict": True}
    body = server.post(PATH, input="the rain", text={"format": form}, **DRAW).json()
    assert json.loads(body["output"][0]["content"][0]["text"]) in ("a", "b")
    assert body["text"]["format"]["schema"] == {"enum": ["a", "b"]}


def test_an_answer_that_is_cut_off(server: RunningServer) -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"const": "a long text"}}
    asked = {**DRAW, "max_output_tokens": 2, "input": "the rain", "text": {"format": form}}
    body = server.post(PATH, **asked).json()
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert body["output"][0]["status"] == "incomplete"
    assert events_of(server, **asked)[-1]["type"] == "response.incomplete"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"store": True}, "store"),
        ({"previous_response_id": "resp-1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"reasoning": {"effort": "low"}}, "reasoning"),
        ({"include": ["x"]}, "include"),
        ({"truncation": "auto"}, "truncation"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": []}, "input"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "schema"),
        ({"stream_options": {}}, "stream_options"),
        ({"n": 2}, "n"),
    ],
)
def test_what_is_not_done_is_named(server: RunningServer, fields: dict[str, Any], named: str) -> None:
    response = server.post(PATH, **{"input": "x", "max_output_tokens": 2, **fields})
    assert response.status_code == 400
    assert named in response.json()["error"]["message"]
    assert server.post(PATH, input="x", max_output_tokens=1, store=False, include=[]).status_code == 200
