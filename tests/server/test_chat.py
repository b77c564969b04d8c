"""Chats: the same answer streamed, whole, and from the Python API; its form is the one the API has."""

from typing import Any

import pytest
from tests.server.running import RunningServer

from twostroke import LLM

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
DRAW: dict[str, Any] = {"temperature": 1, "top_p": 1, "max_tokens": 24, "ignore_eos": True, "seed": 7}
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the rain"}]


def content_of(chunks: list[dict[str, Any]], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get("content", "") for choice in choices)


@pytest.mark.parametrize("options", [GREEDY, DRAW], ids=["greedy", "seeded"])
def test_streamed_whole_and_from_python_are_the_same(server: RunningServer, tiny: LLM, options: dict[str, Any]) -> None:
    whole = server.post("/v1/chat/completions", messages=MESSAGES, **options).json()
    chunks = server.stream("/v1/chat/completions", messages=MESSAGES, **options)
    assert content_of(chunks) == whole["choices"][0]["message"]["content"] == tiny.chat(MESSAGES, **options).text
    assert len(chunks) >= 3


def test_a_response_has_the_apis_form(server: RunningServer) -> None:
    given = server.post("/v1/chat/completions", messages=MESSAGES, model="tiny", **DRAW)
    body = given.json()
    assert given.headers["content-type"] == "application/json"
    assert body["object"] == "chat.completion" and body["model"] == "tiny"
    assert body["id"].startswith("chatcmpl-") and given.headers["x-request-id"].endswith(body["id"][9:])
    (choice,) = body["choices"]
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "length", None)
    assert choice["message"]["role"] == "assistant"
    usage = body["usage"]
    assert usage["completion_tokens"] == 24
    assert usage["total_tokens"] == usage["prompt_tokens"] + 24
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]


def test_the_ledgers_account_is_in_the_response(server: RunningServer) -> None:
    body = server.post("/v1/chat/completions", messages=MESSAGES, **DRAW).json()
    account = body["twostroke"]
    assert account["seed"] == 7
    cached = body["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert account["prefill"]["tokens"] == body["usage"]["prompt_tokens"] - cached
    assert account["decode"]["tokens"] == 23
    assert 0 <= account["queue_s"] < account["ttft_s"] < account["total_s"]
    for phase in ("prefill", "decode"):
        assert account[phase]["achieved_byte_s"] > 0 and account[phase]["achieved_flop_s"] > 0
    again = server.post("/v1/chat/completions", messages=MESSAGES, **{**DRAW, "seed": account["seed"]}).json()
    assert again["choices"] == body["choices"]


def test_a_stream_has_the_apis_form(server: RunningServer) -> None:
    chunks = server.stream("/v1/chat/completions", messages=MESSAGES, **GREEDY)
    assert len({(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-1]["choices"][0]["delta"] == {} and chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert all("usage" not in chunk for chunk in chunks)


def test_usage_comes_last_where_it_is_asked_for(server: RunningServer) -> None:
    chunks = server.stream("/v1/chat/completions", messages=MESSAGES, stream_options={"include_usage": True}, **GREEDY)
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 24
    whole = server.post("/v1/chat/completions", messages=MESSAGES, **GREEDY).json()
    assert {**chunks[-1]["usage"], "prompt_tokens_details": 0} == {**whole["usage"], "prompt_tokens_details": 0}
    assert chunks[-1]["twostroke"]["decode"]["tokens"] == 23


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_usage_so_far_is_in_every_chunk_where_it_is_asked_for(server: RunningServer, path: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    given: dict[str, Any] = {"messages": MESSAGES} if "chat" in path else {"prompt": "the rain"}
    given |= {"temperature": 0, "max_tokens": 400, "ignore_eos": True}
    chunks = server.stream(path, stream_options=options, **given)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts) and counts[0] < counts[-2] == counts[-1] == 400
    prompt = chunks[-1]["usage"]["prompt_tokens"]
    assert all(chunk["usage"]["total_tokens"] == prompt + n for chunk, n in zip(chunks, counts, strict=True))
    alone = server.stream(path, stream_options={"continuous_usage_stats": True}, **given)
    assert alone[-1]["choices"] and alone[-1]["usage"]["completion_tokens"] == 400


def test_choices_of_one_seed_differ_and_repeat(server: RunningServer) -> None:
    """Case SEED-02."""

    def texts(**more: Any) -> list[str]:
        body = server.post("/v1/chat/completions", messages=MESSAGES, n=4, **{**DRAW, **more}).json()
        assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
        assert body["usage"]["completion_tokens"] == 4 * 24
        return [choice["message"]["content"] for choice in body["choices"]]

    first = texts()
    assert len(set(first)) == 4 and texts() == first and texts(seed=8) != first
    chunks = server.stream("/v1/chat/completions", messages=MESSAGES, n=4, **DRAW)
    assert [content_of(chunks, index) for index in range(4)] == first


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_as_many_tokens_as_asked_for(server: RunningServer, name: str, count: int) -> None:
    """Case LIM-01."""
    body = server.chat(temperature=0, ignore_eos=True, **{name: count}).json()
    assert body["usage"]["completion_tokens"] == count
    assert body["choices"][0]["finish_reason"] == "length"
    cached = body["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert body["twostroke"]["prefill"]["tokens"] == body["usage"]["prompt_tokens"] - cached
    assert (body["choices"][0]["message"]["content"] == "") == (count == 0)


def test_the_newer_name_of_max_tokens_goes_first(server: RunningServer) -> None:
    body = server.chat(temperature=0, ignore_eos=True, max_tokens=9, max_completion_tokens=2).json()
    assert body["usage"]["completion_tokens"] == 2


def test_content_in_parts_is_one_text(server: RunningServer) -> None:
    def answer(content: Any) -> Any:
        messages = [{"role": "user", "content": content}]
        return server.post("/v1/chat/completions", messages=messages, **GREEDY).json()["choices"]

    assert answer([{"type": "text", "text": "the"}, {"type": "text", "text": "rain"}]) == answer("the\nrain")
    assert answer("") != answer("the")  # an empty message is one, too


def test_developer_is_system(server: RunningServer) -> None:
    def answer(role: str) -> Any:
        messages = [{"role": role, "content": "be brief"}, *MESSAGES[1:]]
        return server.post("/v1/chat/completions", messages=messages, **GREEDY).json()["choices"]

    assert answer("developer") == answer("system")


def test_a_final_message_goes_on(server: RunningServer, tiny: LLM) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "the hou"}]
    body = server.post("/v1/chat/completions", messages=messages, continue_final_message=True, **GREEDY).json()
    text = tiny.render(messages, continue_final_message=True, add_generation_prompt=False)
    assert text.text.endswith("the hou")
    assert body["choices"][0]["message"]["content"] == tiny.generate(text.ids, **GREEDY).text


def test_an_answer_may_be_sent_back(server: RunningServer) -> None:
    message = server.post("/v1/chat/completions", messages=MESSAGES, **GREEDY).json()["choices"][0]["message"]
    extra = {"annotations": [], "audio": None, "function_call": None, "tool_calls": None}
    again = server.post(
        "/v1/chat/completions", messages=[*MESSAGES, {**message, **extra}, {"role": "user", "content": "x"}], **GREEDY
    )
    assert again.status_code == 200, again.text
