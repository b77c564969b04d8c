"""Requests that are none: each is a 4xx that names what is wrong, and nobody else notices."""

import json
import socket
from typing import Any

import pytest
from tests.server.running import RunningServer, running

from twostroke import LLM

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "the rain"}]


def body(**fields: Any) -> bytes:
    return json.dumps({"messages": MESSAGES, "max_tokens": 1, **fields}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"\xff\xfe",
        b"\x00" * 100,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        body()[:-1] + b',"temperature":NaN}',
        body()[:-1] + b',"temperature":Infinity}',
        body()[:-1] + b',"temperature":1e999}',
        body()[:-1] + b',"seed":' + b"9" * 5000 + b"}",
        body()[:-1] + b',"user":"\xff"}',
        body()[:-1] + b',"user":"\\ud800"}',
        body(temperature=-1),
        body(temperature="1"),
        body(temperature=True),
        body(max_tokens=1.5),
        body(max_tokens=-1),
        body(max_tokens=2**31),
        body(seed=2**64),
        body(top_p=0),
        body(n=[]),
        body(stop=""),
        body(stop=[1]),
        body(stream="yes"),
        body(messages=[]),
        body(messages="x"),
        body(messages=[{}]),
        body(messages=[{"role": "robot", "content": "x"}]),
        body(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
        body(messages=[{"role": "user", "content": {"text": "x"}}]),
        body(top_logprobs=3),
        body(chat_template_kwargs={"messages": []}),
        body(continue_final_message=True, add_generation_prompt=True),
    ],
)
def test_a_body_that_is_wrong_is_a_400(server: RunningServer, data: bytes) -> None:
    """Cases ODD-04 and UTF-03."""
    response = server.client.post(CHAT, content=data, headers={"content-type": "application/json"})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error" and 0 < len(error["message"]) < 1100
    assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"temprature": 1}, "temprature"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"store": True}, "store"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"adapter": "a"}, "adapter"),  # none can be loaded: the base model's answer is never given for one's
        ({"lora": [{"id": 0, "scale": 1.0}]}, "lora"),
        ({"lora_request": {"lora_name": "a"}}, "lora_request"),
        ({"stream_options": {"x": 1}, "stream": True}, "stream_options.x"),
        ({"messages": [{"role": "user", "content": "x", "mood": "good"}]}, "messages[0].mood"),
    ],
)
def test_what_is_not_done_is_named(server: RunningServer, fields: dict[str, Any], named: str) -> None:
    """Cases ODD-11 and BAT-05."""
    response = server.client.post(CHAT, content=body(**fields))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == named and named in response.json()["error"]["message"]


def test_fields_that_ask_for_nothing_are_taken(server: RunningServer) -> None:
    harmless = {"tools": [], "tool_choice": "none", "store": False, "response_format": {"type": "text"}, "user": "me"}
    assert server.client.post(CHAT, content=body(**harmless, service_tier="auto", logit_bias={})).status_code == 200


def test_leniency_leaves_out_unknown_fields_and_nothing_else(tiny: LLM) -> None:
    with running(tiny, lenient=True) as server:
        inner = [{"role": "user", "content": [{"type": "text", "text": "the rain", "cache_control": {}}], "mood": 1}]
        lenient = server.post(CHAT, messages=inner, temprature=1, max_tokens=4, temperature=0)
        plain = server.post(CHAT, messages=MESSAGES, max_tokens=4, temperature=0)
        assert lenient.json()["choices"] == plain.json()["choices"]
        assert server.post(CHAT, messages=MESSAGES, tools=[{}]).status_code == 400
        assert server.post(CHAT, messages=MESSAGES, temperature="x").status_code == 400


def test_a_prompt_that_is_too_long_is_never_cut(server: RunningServer) -> None:
    """Cases CTX-01, CTX-03 and CTX-10."""
    for path, fields in (
        (CHAT, {"messages": [{"role": "user", "content": "q" * 3000}]}),
        ("/v1/completions", {"prompt": [5] * 3000}),
        ("/v1/completions", {"prompt": "x", "max_tokens": 3000}),
        ("/v1/embeddings", {"input": [5] * 3000}),
    ):
        response = server.post(path, **fields)
        error = response.json()["error"]
        assert response.status_code == 400 and error["code"] == "context_length_exceeded"
        assert "2048" in error["message"] and ("3000" in error["message"] or "3017" in error["message"])
    assert server.client.get("/v1/models").json()["data"][0]["max_model_len"] == 2048


def test_a_context_that_fills_up_ends_with_length(server: RunningServer) -> None:
    """Case CTX-05."""
    done = server.complete([5] * 2000, max_tokens=48, ignore_eos=True, temperature=0)
    assert done["usage"]["total_tokens"] == 2048
    chat = server.chat("q " * 900, ignore_eos=True, temperature=0).json()
    assert chat["usage"]["total_tokens"] == 2048 and chat["choices"][0]["finish_reason"] == "length"


def test_names_of_models(server: RunningServer) -> None:
    assert [model["id"] for model in server.client.get("/v1/models").json()["data"]] == ["tiny", "other name"]
    assert server.client.get("/v1/models/other name").json()["id"] == "other name"
    for response in (server.chat(model="gpt-4"), server.client.get("/v1/models/gpt-4")):
        assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
    assert server.chat(model="other name", max_tokens=1).json()["model"] == "other name"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", CHAT, 405),
        ("POST", "/health", 405),
        ("GET", "/v2", 404),
        ("GET", "/page/", 404),
        ("POST", CHAT + "/", 404),
    ],
)
def test_paths_and_methods(server: RunningServer, method: str, path: str, status: int) -> None:
    response = server.client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-A: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nBad Header: x\r\n\r\n",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: \xff\xfe\r\nConnection: close\r\n\r\n",
        b"GET /%ff%00/\xc3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ],
)
def test_odd_headers_are_refused_or_harmless(server: RunningServer, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=60) as raw:
        raw.sendall(data)
        status = raw.recv(65536)[9:12]
    assert status == b"200" or status[:1] == b"4"
    assert server.client.get("/health").status_code == 200


@pytest.mark.parametrize("messages", [[""], ["", "x", ""], ["\n \t"]])
def test_messages_without_content_are_answered(server: RunningServer, messages: list[str]) -> None:
    """Case ODD-03."""
    roles = ("user", "assistant", "user")
    chat = [{"role": role, "content": text} for role, text in zip(roles, messages, strict=False)]
    done = server.post(CHAT, messages=chat, max_tokens=3, ignore_eos=True)
    assert done.status_code == 200 and done.json()["usage"]["completion_tokens"] == 3
