"""Text as it streams: characters of several tokens, bytes that are none, stop texts; log-probabilities of tokens."""

import json
from typing import Any

import pytest
from tests.server.running import RunningServer

from twostroke import LLM

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}


def streamed(server: RunningServer, **body: Any) -> list[dict[str, Any]]:
    return [chunk["choices"][0] for chunk in server.stream("/v1/completions", **body)]


def forced(tiny: LLM, text: str) -> dict[str, Any]:
    """Options under which the model can only write the bytes of `text`, in whatever order."""
    tokens = {token for character in text for token in tiny.tokenizer.encode(character)}
    return {"logit_bias": {str(token): 100 for token in tokens}, "max_tokens": 60, "ignore_eos": True}


@pytest.mark.parametrize("seed", range(4))
def test_bytes_that_are_no_text_are_valid_json(server: RunningServer, tiny: LLM, seed: int) -> None:
    """A random model draws bytes: what is streamed is what is given whole, and both are Unicode (UTF-03)."""
    body = {"prompt": [200, 150, 250], "temperature": 1e6, "top_p": 1, "seed": seed, "max_tokens": 80}
    whole = server.complete(body.pop("prompt"), **body)["choices"][0]
    pieces = streamed(server, prompt=[200, 150, 250], **body)
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    assert "\ufffd" in whole["text"]
    assert whole["text"].encode("utf-8").decode("utf-8") == whole["text"]


@pytest.mark.parametrize("text", ["🙂é漢", "漢"])
def test_a_character_of_several_tokens_comes_whole(server: RunningServer, tiny: LLM, text: str) -> None:
    """Case UTF-01."""
    options = {**forced(tiny, text), "temperature": 1, "top_p": 1, "seed": 1}
    whole = server.complete("x", **options)["choices"][0]["text"]
    pieces = [piece["text"] for piece in streamed(server, prompt="x", **options)]
    assert "".join(pieces) == whole
    assert len(tiny.tokenizer.encode(text[0])) > 1


@pytest.mark.parametrize("text", ["🙂", "漢字é", "a🙂漢b"])
def test_characters_of_several_tokens_are_streamed_without_loss(server: RunningServer, tiny: LLM, text: str) -> None:
    """Each where its last token is, with nothing in place of its first ones (UTF-01)."""
    asked = {"regex": text, "temperature": 1, "seed": 1, "max_tokens": 40}
    assert server.complete(**asked)["choices"][0]["text"] == text
    pieces = [piece["text"] for piece in streamed(server, prompt="the rain", **asked)]
    assert "".join(pieces) == text
    chat = server.stream("/v1/chat/completions", messages=[{"role": "user", "content": "x"}], **asked)
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chat) == text
    assert len(tiny.tokenizer.encode(text)) > len(text)


@pytest.mark.parametrize("width", [1, 3, 9])
@pytest.mark.parametrize("start", [0, 5, 11])
def test_nothing_of_a_stop_text_is_sent(server: RunningServer, width: int, start: int) -> None:
    """Cases STP-01 and STP-02."""
    text = server.complete(**GREEDY)["choices"][0]["text"]
    stop = text[start : start + width]
    kept = text[: text.index(stop)]
    whole = server.complete(stop=stop, **GREEDY)
    assert whole["choices"][0]["text"] == kept and whole["choices"][0]["finish_reason"] == "stop"
    pieces = streamed(server, prompt="the rain", stop=[stop, "never there"], **GREEDY)
    assert "".join(piece["text"] for piece in pieces) == kept
    assert pieces[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize("width", [1, 9])
def test_a_stop_text_is_kept_where_that_is_asked_for(server: RunningServer, tiny: LLM, width: int) -> None:
    """Of a prompt of token ids too, with log-probabilities or without: the answer still ends at it (STP-06)."""
    prompt = tiny.tokenizer.encode("the rain")
    plain = server.complete(prompt, logprobs=0, **GREEDY)["choices"][0]
    stop = plain["text"][5 : 5 + width]
    kept = plain["text"][: plain["text"].index(stop) + len(stop)]
    asked: dict[str, Any] = {"stop": [stop], "include_stop_str_in_output": True, **GREEDY}
    for logprobs in (None, 0):
        whole = server.complete(prompt, logprobs=logprobs, **asked)
        choice = whole["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == (kept, "stop")
        pieces = streamed(server, prompt=prompt, logprobs=logprobs, **asked)
        assert ("".join(piece["text"] for piece in pieces), pieces[-1]["finish_reason"]) == (kept, "stop")
    count = whole["usage"]["completion_tokens"]
    assert count < 40 and choice["logprobs"]["tokens"] == plain["logprobs"]["tokens"][:count]
    assert len(server.complete(prompt, **(asked | {"include_stop_str_in_output": False}))["choices"][0]["text"]) < len(
        kept
    )


def test_a_chat_keeps_a_stop_text_too(server: RunningServer) -> None:
    text = server.chat(**GREEDY).json()["choices"][0]["message"]["content"]
    asked = {"stop": text[5:8], "include_stop_str_in_output": True, **GREEDY}
    chosen = server.chat(**asked).json()["choices"][0]
    assert chosen["message"]["content"] == text[: text.index(text[5:8]) + 3] and chosen["finish_reason"] == "stop"


def test_what_only_began_like_a_stop_text_is_released(server: RunningServer) -> None:
    """Case STP-01."""
    text = server.complete(**GREEDY)["choices"][0]["text"]
    stops = [text[index : index + 4] + "\u2603" for index in range(0, 30, 3)]
    assert server.complete(stop=stops, **GREEDY)["choices"][0]["text"] == text
    assert "".join(piece["text"] for piece in streamed(server, prompt="the rain", stop=stops, **GREEDY)) == text


def test_a_stop_text_at_the_very_end_is_held_until_it_is_known(server: RunningServer) -> None:
    text = server.complete(**GREEDY)["choices"][0]["text"]
    almost = text[-3:] + "x"
    done = server.complete(stop=almost, **GREEDY)["choices"][0]
    assert (done["text"], done["finish_reason"]) == (text, "length")


def test_tokens_of_a_stop_text_have_no_logprobs(server: RunningServer) -> None:
    plain = server.complete(logprobs=0, **GREEDY)["choices"][0]
    offsets = plain["logprobs"]["text_offset"]
    cut = offsets[10]
    stop = plain["text"][cut : cut + 6]
    assert plain["text"].index(stop) == cut
    stopped = server.complete(logprobs=0, stop=stop, **GREEDY)
    assert stopped["choices"][0]["logprobs"]["tokens"] == plain["logprobs"]["tokens"][:10]
    assert stopped["usage"]["completion_tokens"] > 10


def test_a_chats_logprobs(server: RunningServer) -> None:
    """Case LGP-01."""
    bare = server.chat(logprobs=True, **GREEDY).json()["choices"][0]
    entries = bare["logprobs"]["content"]
    assert len(entries) == 40 and all(entry["top_logprobs"] == [] for entry in entries)
    assert (
        bytes(byte for entry in entries for byte in entry["bytes"]).decode("utf-8", "replace")
        == (bare["message"]["content"])
    )
    full = server.chat(logprobs=True, top_logprobs=3, **GREEDY).json()["choices"][0]["logprobs"]["content"]
    for entry in full:
        likely = [other["logprob"] for other in entry["top_logprobs"]]
        assert len(likely) == 3 and likely == sorted(likely, reverse=True)
        assert entry["logprob"] == likely[0] and entry["token"] == entry["top_logprobs"][0]["token"]  # greedy
    chunks = server.stream(
        "/v1/chat/completions", messages=[{"role": "user", "content": "the rain"}], logprobs=True, **GREEDY
    )
    streamed_entries = [
        entry for chunk in chunks if (found := chunk["choices"][0]["logprobs"]) for entry in found["content"]
    ]
    assert streamed_entries == entries


def test_control_tokens_have_names_in_logprobs_only(server: RunningServer, tiny: LLM) -> None:
    (end,) = tiny.tokenizer.encode("<|im_end|>", parse_special=True)
    body = server.chat(logprobs=True, max_tokens=3, logit_bias={str(end): 100}).json()["choices"][0]
    assert (body["message"]["content"], body["finish_reason"]) == ("", "stop")
    assert [entry["token"] for entry in body["logprobs"]["content"]] == ["<|im_end|>"]


@pytest.mark.parametrize("temperature", [0, 1e6])
def test_penalties_and_extremes(server: RunningServer, temperature: float) -> None:
    """Case ODD-07."""
    options = {"temperature": temperature, "top_p": 1, "max_tokens": 40, "ignore_eos": True, "seed": 1}
    plain = server.complete(**options)["choices"][0]["text"]
    penalised = server.complete(**options, repetition_penalty=1.5, logprobs=0)["choices"][0]
    assert len(set(penalised["logprobs"]["tokens"])) > 20
    assert temperature or penalised["text"] != plain
    assert json.dumps(penalised, allow_nan=False)
