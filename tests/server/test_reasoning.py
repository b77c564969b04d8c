"""Models that think first, through the server: reasoning and content stay apart, streamed or whole, also where cut."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.running import RunningServer, running
from tests.server.test_responses import events_of
from tests.tiny import CHAT_TEMPLATE, write_tiny_gguf

from twostroke import LLM

# Opens the tag itself, as DeepSeek-R1's and QwQ's do, unless told not to think; `</think>` is how it is known.
TEMPLATE = CHAT_TEMPLATE.replace(
    "assistant\\n' }}{% endif %}",
    "assistant\\n' }}{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}"
    "{% else %}{{ '<think>\\n' }}{% endif %}{% endif %}",
)
DRAW: dict[str, Any] = {"temperature": 1.0, "seed": 3, "max_tokens": 30, "ignore_eos": True}
MESSAGES = [{"role": "user", "content": "the rain"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("thinks") / "thinks.gguf", seed=3, template=TEMPLATE)
    with LLM(path, threads=1, max_batch=4) as llm, running(llm) as server:
        yield server


def test_reasoning_that_never_ends_is_all_reasoning(server: RunningServer) -> None:
    """Cases TOL-07 and TOL-10."""
    whole = server.chat(**DRAW).json()
    message = whole["choices"][0]["message"]
    assert message["content"] == "" and message["reasoning_content"]
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 30
    chunks = server.stream("/v1/chat/completions", messages=MESSAGES, **DRAW)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == message["reasoning_content"]
    assert not any(delta.get("content") for delta in deltas)


def test_what_the_template_closes_is_no_reasoning(server: RunningServer) -> None:
    asked = {**DRAW, "chat_template_kwargs": {"enable_thinking": False}}
    message = server.chat(**asked).json()["choices"][0]["message"]
    assert message["content"] and "reasoning_content" not in message
    held = server.chat(regex="[0-9]{4}", **asked).json()["choices"][0]
    assert len(held["message"]["content"]) == 4 and held["finish_reason"] == "stop"


def test_reasoning_is_an_item_and_a_block_in_the_other_apis(server: RunningServer) -> None:
    expected = server.chat(**{**DRAW, "ignore_eos": False}).json()["choices"][0]["message"]["reasoning_content"]
    asked = {"input": "the rain", "temperature": 1.0, "seed": 3, "max_output_tokens": 30}
    [item] = server.post("/v1/responses", **asked).json()["output"]
    assert item["type"] == "reasoning" and item["content"][0]["text"] == expected
    events = events_of(server, **asked)
    text = "".join(event["delta"] for event in events if event["type"] == "response.reasoning_text.delta")
    assert text == expected
    message = {"model": "tiny", "messages": MESSAGES, "max_tokens": 30, "temperature": 0}
    [block] = server.post("/v1/messages", thinking={"type": "enabled", "budget_tokens": 1024}, **message).json()[
        "content"
    ]
    assert block["type"] == "thinking" and block["thinking"]
    found = events_of(server, "/v1/messages", **message)
    kinds = {event["delta"]["type"] for event in found if event["type"] == "content_block_delta"}
    assert kinds == {"thinking_delta"}
    [block] = server.post("/v1/messages", thinking={"type": "disabled"}, **message).json()["content"]
    assert block["type"] == "text"


def test_stop_strings_are_of_the_content(server: RunningServer) -> None:
    reasoning = server.chat(**DRAW).json()["choices"][0]["message"]["reasoning_content"]
    stopped = server.chat(stop=[reasoning[5:8]], **DRAW).json()["choices"][0]
    assert stopped["message"]["reasoning_content"] == reasoning
