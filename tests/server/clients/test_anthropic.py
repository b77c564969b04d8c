"""The `anthropic` package, unchanged: messages, streams, tools, counting, errors.

Skipped where the package is not installed (`pip install -e '.[clients]'`).
"""

from typing import Any

import pytest
from tests.server.running import RunningServer

anthropic = pytest.importorskip("anthropic")

ASKED: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 200,
    "messages": [{"role": "user", "content": "the rain"}],
}
WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 5}, "unit": {"enum": ["C", "F"]}},
        "required": ["city", "unit"],
    },
}


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Any:
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def test_a_message_whole_and_streamed(client: Any) -> None:
    whole = client.messages.create(extra_body={"temperature": 0}, system="be brief", **ASKED)
    assert whole.role == "assistant" and whole.content[0].type == "text"
    with client.messages.stream(extra_body={"temperature": 0}, system="be brief", **ASKED) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_a_call_and_its_result(client: Any) -> None:
    options: dict[str, Any] = {**ASKED, "tools": [WEATHER], "extra_body": {"temperature": 1}, "max_tokens": 400}
    must = {"type": "any", "disable_parallel_tool_use": True}
    whole = client.messages.create(tool_choice=must, **options)
    assert whole.stop_reason == "tool_use"
    [call] = whole.content
    assert call.name == "weather" and call.input["unit"] in ("C", "F")
    with client.messages.stream(tool_choice=must, **options) as stream:
        parts = [event for event in stream if event.type == "input_json"]
        [streamed] = stream.get_final_message().content
    assert parts[-1].snapshot == streamed.input and streamed.input["unit"] in ("C", "F")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 C"}
    history = [
        *ASKED["messages"],
        {"role": "assistant", "content": whole.content},
        {"role": "user", "content": [result]},
    ]
    assert client.messages.create(**{**options, "messages": history}).content


def test_counting(client: Any) -> None:
    counted = client.messages.count_tokens(model="tiny", messages=ASKED["messages"]).input_tokens
    usage = client.messages.create(**{**ASKED, "max_tokens": 1}).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_errors_are_those_of_the_package(client: Any) -> None:
    with pytest.raises(anthropic.NotFoundError, match="not served here"):
        client.messages.create(**{**ASKED, "model": "another"})
    with pytest.raises(anthropic.BadRequestError, match="thinking"):
        client.messages.create(thinking={"type": "enabled", "budget_tokens": 1024}, **{**ASKED, "max_tokens": 2000})
    with pytest.raises(anthropic.BadRequestError, match="mcp_servers"):
        client.messages.create(extra_body={"mcp_servers": [{}]}, **ASKED)
