"""Embeddings, tokens, metrics, the OpenAPI document; many clients at once."""

import base64
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.running import RunningServer

from twostroke import LLM
from twostroke.server.logs import JsonLines, TextLines
from twostroke.server.openapi import openapi_document
from twostroke.server.routes import ENDPOINTS

TEXTS = ["the rain", "a stone in the sea", "x"]


def test_embeddings_are_those_of_the_python_api(server: RunningServer, tiny: LLM) -> None:
    expected = tiny.embed(TEXTS)
    body = server.post("/v1/embeddings", input=TEXTS).json()
    assert [item["index"] for item in body["data"]] == [0, 1, 2]
    np.testing.assert_array_equal(np.float32([item["embedding"] for item in body["data"]]), expected)
    coded = server.post("/v1/embeddings", input=TEXTS, encoding_format="base64").json()["data"]
    for item, vector in zip(coded, expected, strict=True):
        np.testing.assert_array_equal(np.frombuffer(base64.b64decode(item["embedding"]), "<f4"), vector)
    ids = [tiny.tokenizer.encode(text) for text in TEXTS]
    assert server.post("/v1/embeddings", input=ids).json()["data"] == body["data"]
    assert server.post("/v1/embeddings", input=TEXTS[0]).json()["data"][0]["embedding"] == body["data"][0]["embedding"]
    assert body["usage"]["prompt_tokens"] == body["usage"]["total_tokens"] == sum(map(len, ids))


def test_many_embeddings_are_run_a_few_at_a_time(server: RunningServer, tiny: LLM) -> None:
    texts = [f"{number} stones" for number in range(100)]
    body = server.post("/v1/embeddings", input=texts).json()
    np.testing.assert_array_equal(np.float32([item["embedding"] for item in body["data"]]), tiny.embed(texts))


@pytest.mark.parametrize("given", ["", [], [""], ["x", ""], [[]], [[99999]]])
def test_what_cannot_be_embedded(server: RunningServer, given: Any) -> None:
    assert server.post("/v1/embeddings", input=given).status_code == 400
    assert server.post("/v1/embeddings", input="x", dimensions=8).json()["error"]["param"] == "dimensions"


def test_tokens_there_and_back(server: RunningServer, tiny: LLM) -> None:
    text = "naïve 🙂 <|im_end|>"
    body = server.post("/tokenize", prompt=text).json()
    assert body["tokens"] == tiny.tokenizer.encode(text) and body["count"] == len(body["tokens"])
    assert body["max_model_len"] == tiny.context
    assert server.post("/detokenize", tokens=body["tokens"]).json() == {"prompt": text}
    parsed = server.post("/tokenize", prompt=text, parse_special=True).json()["tokens"]
    assert parsed == tiny.tokenizer.encode(text, parse_special=True) != body["tokens"]
    messages = [{"role": "user", "content": "hi"}]
    assert server.post("/tokenize", messages=messages).json()["tokens"] == tiny.render(messages).ids
    assert server.post("/detokenize", tokens=[99999]).status_code == 400
    for wrong in ({}, {"prompt": "x", "messages": messages}):
        assert server.post("/tokenize", **wrong).status_code == 400


def test_metrics_are_prometheus_and_count(server: RunningServer) -> None:
    before = {name: server.metric(name) for name in ("prompt_tokens_total", "generation_tokens_total")}
    usage = server.complete("the rain", max_tokens=7, ignore_eos=True)["usage"]
    assert server.metric("prompt_tokens_total") - before["prompt_tokens_total"] == usage["prompt_tokens"]
    assert server.metric("generation_tokens_total") - before["generation_tokens_total"] == 7
    families = {family.name: family for family in text_string_to_metric_families(server.client.get("/metrics").text)}
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_ratio",
        "time_to_first_token_seconds",
        "time_per_output_token_seconds",
        "e2e_request_latency_seconds",
        "num_preemptions",
        "request_success",
        "cached_prompt_tokens",
        "achieved_bytes_per_second",
        "achieved_flops_per_second",
        "phase_seconds",
    ):
        assert families[f"twostroke_{name}"].documentation
    assert server.metric("achieved_bytes_per_second", phase="decode") > 0
    assert server.metric("kv_cache_usage_ratio") == 0
    assert 0 < server.metric("time_to_first_token_seconds_count") <= server.metric("e2e_request_latency_seconds_count")


def test_the_document_has_every_endpoint_and_model(server: RunningServer) -> None:
    document = server.client.get("/openapi.json").json()
    assert document == json.loads(json.dumps(openapi_document()))
    for endpoint in ENDPOINTS:
        operation = document["paths"][endpoint.path.replace(":path", "")][endpoint.method.lower()]
        if endpoint.body is not None:
            schema = document["components"]["schemas"][endpoint.body.__name__]
            assert set(schema["properties"]) == set(endpoint.body.model_fields)
            assert endpoint.body.__name__ in str(operation["requestBody"])
    (since,) = document["paths"]["/activity"]["get"]["parameters"]
    assert (since["name"], since["in"], since["schema"]) == ("since", "query", {"type": "number"})
    (name,) = document["paths"]["/v1/models/{name}"]["get"]["parameters"]
    assert (name["name"], name["in"], name["required"]) == ("name", "path", True)


def test_models_say_what_one_request_may_have_and_what_all_share(server: RunningServer, tiny: LLM) -> None:
    """The pool is no multiple of the context: the two are named apart, and the smaller bounds a request (CTX-08)."""
    for model in server.client.get("/v1/models").json()["data"]:
        assert model["max_model_len"] == tiny.context
        cache = tiny.running.engine.cache
        assert model["kv_pool_tokens"] == cache.num_blocks * cache.block_tokens == tiny.memory.pool_tokens
        assert server.client.get(f"/v1/models/{model['id']}").json() == model
    most = server.post("/v1/completions", prompt=[5] * (tiny.context - 1), max_tokens=1)
    assert most.status_code == 200 and most.json()["usage"]["prompt_tokens"] == tiny.context - 1
    over = server.post("/v1/completions", prompt=[5] * (tiny.context + 1), max_tokens=1).json()["error"]
    assert over["code"] == "context_length_exceeded" and f"{tiny.context + 1}" in over["message"]


def test_many_at_once_are_as_each_alone(server: RunningServer) -> None:
    """Sixteen prompts of different lengths, greedy and drawn, twice as many as run together (SEED-07 and BAT-01)."""

    def ask(number: int) -> Any:
        options = {"temperature": 0} if number % 2 else {"temperature": 1, "seed": number}
        return server.complete(f"word {number} " * (1 + number % 5), max_tokens=30, **options)["choices"]

    alone = [ask(number) for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(16))) == alone
        copies = list(pool.map(lambda _: ask(1), range(16)))
    assert copies == [alone[1]] * 16


def test_a_seed_is_kept_among_neighbours_that_have_none(server: RunningServer) -> None:
    """On every run, whatever it is batched with; those without a seed differ from each other (SEED-01)."""

    def ask(seed: int | None) -> str:
        drawn = server.complete("the rain", temperature=1, top_p=1, max_tokens=30, ignore_eos=True, seed=seed)
        return str(drawn["choices"][0]["text"])

    alone = ask(11)
    for neighbours in (1, 5):
        with ThreadPoolExecutor(1 + neighbours) as pool:
            seeded, *others = pool.map(ask, [11, *[None] * neighbours])
        assert seeded == alone and len({alone, *others}) == 1 + neighbours


@pytest.mark.parametrize("draw", [{"temperature": 0}, {"temperature": 1, "top_p": 1, "seed": 4}])
def test_a_prompt_that_was_seen_is_not_computed_again(server: RunningServer, draw: dict[str, Any]) -> None:
    """And its answer is the same, drawn or not (SEED-05 and BAT-07)."""
    options: dict[str, Any] = {"max_tokens": 10, **draw, "cache_salt": f"one{draw}"}
    prompt = list(range(5, 205))
    first, second = server.complete(prompt, **options), server.complete(prompt, **options)
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert 150 < cached < 200 and second["twostroke"]["prefill"]["tokens"] == 200 - cached
    assert second["choices"] == first["choices"]
    other = server.complete(prompt, **{**options, "cache_salt": f"two{draw}"})
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_log_lines() -> None:
    record = logging.LogRecord("twostroke.access", logging.INFO, "x", 1, "request", (), None)
    record.request_id = "a\nb"
    line = JsonLines().format(record)
    assert json.loads(line)["request_id"] == "a\nb" and "\n" not in line
    assert json.loads(line)["message"] == "request"
    assert TextLines().format(record).endswith("request request_id=a\\nb")
