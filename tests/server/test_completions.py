"""Completions: prompts as texts and ids, several at once, echoed, scored; offsets that point into the text."""

from typing import Any

import pytest
from tests.server.running import RunningServer

from twostroke import LLM

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
PROMPTS = ["the rain", "a stone in the sea", "x"]


def test_texts_ids_and_lists_of_them(server: RunningServer, tiny: LLM) -> None:
    alone = [tiny.generate(prompt, **GREEDY).text for prompt in PROMPTS]
    ids = [tiny.tokenizer.encode(prompt) for prompt in PROMPTS]
    assert [server.complete(prompt, **GREEDY)["choices"][0]["text"] for prompt in PROMPTS] == alone
    assert [server.complete(own, **GREEDY)["choices"][0]["text"] for own in ids] == alone
    for together in (PROMPTS, ids):
        body = server.complete(together, **GREEDY)
        assert [choice["text"] for choice in body["choices"]] == alone
        assert body["usage"]["prompt_tokens"] == sum(map(len, ids))
        chunks = server.stream("/v1/completions", prompt=together, **GREEDY)
        for index, text in enumerate(alone):
            found = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
            assert "".join(choice["text"] for choice in found) == text
            assert [choice["finish_reason"] for choice in found if choice["finish_reason"]] == ["length"]


def test_choices_of_each_prompt_are_those_of_the_prompt_alone(server: RunningServer) -> None:
    options: dict[str, Any] = {**GREEDY, "temperature": 1, "seed": 3, "n": 2}
    body = server.complete(PROMPTS, **options)
    alone = [choice["text"] for prompt in PROMPTS for choice in server.complete(prompt, **options)["choices"]]
    assert [choice["text"] for choice in body["choices"]] == alone
    assert [choice["index"] for choice in body["choices"]] == list(range(6))
    assert body["usage"]["prompt_tokens"] * 2 == sum(
        server.complete(prompt, **options)["usage"]["prompt_tokens"] * 2 for prompt in PROMPTS
    )


def test_sixteen_tokens_where_nothing_is_said_streamed_or_whole(server: RunningServer) -> None:
    whole = server.complete(temperature=0, ignore_eos=True)
    assert whole["usage"]["completion_tokens"] == 16
    asked = {"prompt": "the rain", "temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}}
    *chunks, last = server.stream("/v1/completions", **asked)
    assert last["usage"]["completion_tokens"] == 16
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_defaults_are_those_of_a_stream_too(server: RunningServer, path: str) -> None:
    """With no more than a seed, of which the draw is then the model's own (STP-07)."""
    asked: dict[str, Any] = {"seed": 5, "cache_salt": path}
    asked |= (
        {"prompt": "the rain"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "the rain"}]}
    )
    whole = server.post(path, **asked).json()["choices"][0]
    ends = [chunk["choices"][0] for chunk in server.stream(path, **asked)]
    text = "".join(end["text"] if "text" in end else end["delta"].get("content", "") for end in ends)
    assert (text, ends[-1]["finish_reason"]) == (
        whole["text"] if "text" in whole else whole["message"]["content"],
        whole["finish_reason"],
    )


@pytest.mark.parametrize("prompt", ["the rain", "naïve 🙂 stone"])
@pytest.mark.parametrize("as_ids", [False, True])
def test_an_echo_is_the_prompt_and_its_scores(server: RunningServer, tiny: LLM, prompt: str, as_ids: bool) -> None:
    """Cases LGP-04 and LGP-06."""
    ids = tiny.tokenizer.encode(prompt)
    body = server.complete(ids if as_ids else prompt, **{**GREEDY, "max_tokens": 3}, echo=True, logprobs=2)
    (choice,) = body["choices"]
    alone = server.complete(prompt, **{**GREEDY, "max_tokens": 3}, logprobs=2)["choices"][0]
    assert choice["text"] == prompt + alone["text"]
    scores = choice["logprobs"]
    assert [len(scores[name]) for name in scores] == [len(ids) + 3] * 4
    assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
    assert scores["token_logprobs"][1 : len(ids)] == pytest.approx(tiny.score(ids).logprobs)
    assert scores["token_logprobs"][len(ids) :] == alone["logprobs"]["token_logprobs"]
    assert scores["tokens"][len(ids) :] == alone["logprobs"]["tokens"]
    assert all(len(likely) == 2 for likely in scores["top_logprobs"][1:])
    assert [len(prompt) + offset for offset in alone["logprobs"]["text_offset"]] == scores["text_offset"][len(ids) :]
    for token, offset in zip(scores["tokens"], scores["text_offset"], strict=True):
        if not token.startswith("bytes:") and choice["text"][offset] != "\ufffd":
            assert choice["text"][offset:].startswith(token)


def test_an_echo_without_new_tokens(server: RunningServer, tiny: LLM) -> None:
    """Case LIM-02."""
    body = server.complete("the rain", max_tokens=0, echo=True)
    assert (body["choices"][0]["text"], body["usage"]["completion_tokens"]) == ("the rain", 0)
    assert body["choices"][0]["finish_reason"] == "length" and body["choices"][0]["logprobs"] is None
    scored = server.complete("the rain", max_tokens=0, echo=True, logprobs=0)["choices"][0]
    assert scored["text"] == "the rain"
    assert scored["logprobs"]["token_logprobs"][1:] == pytest.approx(tiny.score("the rain").logprobs)
    assert scored["logprobs"]["top_logprobs"] == [None] + [{}] * (len(tiny.tokenizer.encode("the rain")) - 1)


def test_a_streamed_echo_is_the_whole_one(server: RunningServer) -> None:
    options = {**GREEDY, "echo": True, "logprobs": 1}
    whole = server.complete("the rain", **options)["choices"][0]
    chunks = [chunk["choices"][0] for chunk in server.stream("/v1/completions", prompt="the rain", **options)]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    for name, values in whole["logprobs"].items():
        assert [value for chunk in chunks for value in chunk["logprobs"][name]] == values


def test_a_bias_is_applied(server: RunningServer, tiny: LLM) -> None:
    """Case ODD-11."""
    (token,) = tiny.tokenizer.encode("z")
    text = server.complete("the rain", **{**GREEDY, "logit_bias": {str(token): 100}})["choices"][0]["text"]
    assert text == "z" * 12


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [99999]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"n": 0}, "n"),
        ({"n": 64, "prompt": ["x"] * 17}, "n: 17 prompts"),
        ({"n": 65}, "n"),
        ({"logprobs": 21}, "logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
def test_what_cannot_be_is_named(server: RunningServer, body: dict[str, Any], named: str) -> None:
    """Case ODD-01."""
    response = server.post("/v1/completions", **{"prompt": "x", **body})
    assert response.status_code == 400
    assert named in response.json()["error"]["message"]
    assert response.json()["error"]["type"] == "invalid_request_error"
