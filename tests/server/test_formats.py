"""Formats through the server: enforced token by token whatever the model would like, or refused by name."""

import json
import re
from typing import Any

import pytest
from tests.server.running import RunningServer

CHAT = "/v1/chat/completions"
DRAW: dict[str, Any] = {"temperature": 1.0, "seed": 5, "max_tokens": 400}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "role": {"$ref": "#/$defs/role"},
        "years": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
    },
    "required": ["name", "role", "years"],
    "additionalProperties": False,
    "$defs": {"role": {"enum": ["cook", "guard"]}},
}


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}


def test_a_schema_is_kept_by_a_model_of_random_weights(server: RunningServer) -> None:
    """Case JSN-03."""
    choices = server.chat(response_format=schema_format(PERSON), n=3, **DRAW).json()["choices"]
    for choice in choices:
        found = json.loads(choice["message"]["content"])
        assert list(found) == ["name", "role", "years"]
        assert found["role"] in ("cook", "guard") and len(found["name"]) <= 8
        assert len(found["years"]) <= 3 and all(0 <= year <= 99 for year in found["years"])
        assert choice["finish_reason"] == "stop"
        assert choice["message"]["content"].endswith("}")
    assert len({choice["message"]["content"] for choice in choices}) > 1


def test_a_stream_and_a_batch_say_the_same(server: RunningServer) -> None:
    asked = {"messages": [{"role": "user", "content": "who"}], "response_format": schema_format(PERSON), **DRAW}
    whole = server.post(CHAT, **asked).json()["choices"][0]["message"]["content"]
    chunks = server.stream(CHAT, **asked)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == whole


def test_an_object_that_is_cut_off_says_so(server: RunningServer) -> None:
    """Case JSN-12."""
    body = server.chat(response_format={"type": "json_object"}, temperature=1.0, seed=1, max_tokens=3).json()
    choice = body["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"].startswith("{")
    assert body["usage"]["completion_tokens"] == 3


def test_a_pattern_a_grammar_and_a_choice(server: RunningServer) -> None:
    date = r"(19|20)\d\d-(0[1-9]|1[0-2])"
    for name, value, form in (
        ("regex", date, date),
        ("guided_regex", date, date),
        ("grammar", 'start: "yes" | "no" DIGIT{2}\nDIGIT: /[0-9]/', r"yes|no\d\d"),
        ("guided_grammar", 'start: "a" "b"?', "ab?"),
        ("guided_choice", ["left", "right/wrong"], "left|right/wrong"),
    ):
        choice = server.chat(**{name: value}, **DRAW).json()["choices"][0]
        assert re.fullmatch(form, choice["message"]["content"]), name
        assert choice["finish_reason"] == "stop"
        text = server.complete(**{name: value}, **DRAW)["choices"][0]["text"]
        assert re.fullmatch(form, text), name
    text = server.complete(guided_json={"const": {"a": [1]}}, **DRAW)["choices"][0]["text"]
    assert json.loads(text) == {"a": [1]}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"response_format": {"type": "json_schema"}}, "json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "json_schema.schema"),
        ({"response_format": {"type": "text", "json_schema": {"name": "x", "schema": {}}}}, "json_schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": schema_format({"not": {}})}, "'not'"),
        ({"response_format": schema_format({"type": "string", "pattern": "(a{99}){999}"})}, "pattern"),
        ({"response_format": schema_format({"type": "object", "properties": {"a": 1}})}, "properties.a"),
        ({"response_format": schema_format({"$ref": "#"})}, "no text satisfies it"),
        ({"regex": "("}, "regex"),
        ({"regex": ""}, "regex"),
        ({"grammar": "begin: x"}, "start"),
        ({"grammar": "start: missing"}, "missing"),
        ({"guided_choice": []}, "guided_choice"),
        ({"regex": "a", "guided_choice": ["a"]}, "exclude each other"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(server: RunningServer, fields: dict[str, Any], named: str) -> None:
    """Case JSN-03."""
    for response in (server.chat(max_tokens=2, **fields), server.post("/v1/completions", prompt="a", **fields)):
        assert response.status_code == 400
        assert named in response.json()["error"]["message"]


def test_text_is_the_default(server: RunningServer) -> None:
    plain = server.chat(**DRAW).json()["choices"]
    assert server.chat(response_format={"type": "text"}, **DRAW).json()["choices"] == plain


def test_one_grammar_does_not_touch_its_neighbours(server: RunningServer) -> None:
    from concurrent.futures import ThreadPoolExecutor

    alone = server.chat("sun", **DRAW).json()["choices"]
    with ThreadPoolExecutor(6) as threads:
        held = [threads.submit(server.chat, "rain", regex="[ab]{40}", **DRAW) for _ in range(3)]
        free = [threads.submit(server.chat, "sun", **DRAW) for _ in range(3)]
        assert all(future.result().json()["choices"] == alone for future in free)
        texts = {future.result().json()["choices"][0]["message"]["content"] for future in held}
    assert len(texts) == 1 and re.fullmatch("[ab]{40}", texts.pop())
