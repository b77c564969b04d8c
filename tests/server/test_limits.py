"""Bounds: what may wait, how large a body may be, what one request may ask for; and who may call at all."""

import select
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.running import RunningServer, running
from tests.server.test_life import RawClient, until

from twostroke import LLM
from twostroke.errors import ConfigError
from twostroke.server.auth import Keys
from twostroke.server.config import ServerConfig


def test_no_more_may_wait_than_the_bound(tiny: LLM) -> None:
    """Case SRV-05."""
    with running(tiny, max_queued=2) as server:
        with tiny.running.loop.paused():
            clients = [RawClient(server, prompt="the rain", max_tokens=2) for _ in range(2)]
            until(lambda: server.service.admission.num_queued == 2)
            refused = server.chat(max_tokens=1)
            assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 60
            assert refused.json()["error"]["type"] == "rate_limit_error"
        for client in clients:
            assert b'"text"' in client.read_until(b"finish_reason")
        assert server.chat(max_tokens=1).status_code == 200
        assert server.metric("request_rejected_total", status="429") == 1


def test_no_more_prompt_tokens_may_wait_than_the_bound(tiny: LLM) -> None:
    """Case SRV-05."""
    with running(tiny, max_queued_tokens=50) as server:
        with tiny.running.loop.paused():
            client = RawClient(server, prompt=[5] * 30, max_tokens=2)
            until(lambda: server.service.admission.num_queued_tokens == 30)
            assert server.post("/v1/completions", prompt=[5] * 21).status_code == 429
        client.read_until(b"finish_reason")
        assert server.post("/v1/completions", prompt=[5] * 21).status_code == 200
        never = server.post("/v1/completions", prompt=[5] * 51)
        assert (never.status_code, never.json()["error"]["code"]) == (400, "request_too_large")


def test_what_can_never_wait_is_no_matter_of_time(tiny: LLM) -> None:
    with running(tiny, max_queued=4) as server:
        assert server.chat(n=5, max_tokens=1).status_code == 400
        assert server.chat(n=4, max_tokens=1).status_code == 200
        assert server.post("/v1/embeddings", input=["a"] * 40).status_code == 200  # run a few at a time


def test_bodies_are_bounded_however_they_come(tiny: LLM) -> None:
    with running(tiny, max_body=1000) as server:
        assert server.chat("x" * 1000).status_code == 413
        chunked = server.client.post("/v1/completions", content=(b"x" * 400 for _ in range(4)))
        assert (chunked.status_code, chunked.json()["error"]["code"]) == (413, "body_too_large")
        assert server.chat("x", max_tokens=1).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(tiny: LLM) -> None:
    with running(tiny, prepare_timeout=0.1) as server, socket.socket() as raw:
        raw.settimeout(60)
        raw.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
        raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        data = b""
        while b"body_timeout" not in data:
            piece = raw.recv(65536)
            assert piece, data
            data += piece


@pytest.mark.parametrize("begun", [b"", b"POST /v1/completions HTTP/1.1\r\nHo"])
def test_a_head_that_does_not_come_is_not_waited_for(tiny: LLM, begun: bytes) -> None:
    """Neither at once nor a byte at a time."""
    with (
        running(tiny, prepare_timeout=0.3) as server,
        socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=60) as raw,
    ):
        raw.sendall(begun)
        while not select.select([raw], [], [], 0.02)[0]:
            if begun:
                raw.sendall(b"x")
        assert raw.recv(65536).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "body",
    [{"stop": ["x"] * 33}, {"stop": "x" * 1025}, {"n": 65}, {"logit_bias": {str(i): 1 for i in range(4097)}}],
)
def test_bounds_of_fields(server: RunningServer, body: dict[str, Any]) -> None:
    assert server.chat(**body).status_code == 400
    assert server.chat(max_tokens=1, stop=["x" * 1024] * 32).status_code == 200


def test_keys_are_needed_where_there_are_some(tiny: LLM) -> None:
    """Case SRV-12."""
    with running(tiny, Keys(["one", "two"])) as server:

        def status(path: str, **headers: str) -> int:
            return server.client.get(path, headers=headers).status_code

        assert status("/v1/models") == 401
        assert status("/v1/models", authorization="Bearer three") == 401
        assert status("/v1/models", authorization="Basic one") == 401
        assert (
            status("/v1/models", authorization="Bearer two") == status("/v1/models", authorization="bearer one") == 200
        )
        assert status("/v1/models", **{"x-api-key": "two"}) == 200
        assert [status(path) for path in ("/health", "/ready", "/metrics")] == [200] * 3
        error = server.client.get("/v1/models").json()["error"]
        assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
        assert server.metric("request_rejected_total", status="401") == 4


@pytest.mark.parametrize(("choice", "without", "with_key"), [("open", 200, 200), ("key", 401, 200), ("off", 404, 404)])
def test_who_reads_the_metrics(tiny: LLM, choice: str, without: int, with_key: int) -> None:
    """Case SRV-12."""
    with running(tiny, Keys(["one"]), metrics=choice) as server:
        assert server.client.get("/metrics").status_code == without
        assert server.client.get("/metrics", headers={"authorization": "Bearer one"}).status_code == with_key
        assert server.client.get("/health").status_code == 200


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\n\n one \ntwo\n")
    keys = Keys.from_file(path)
    from starlette.datastructures import Headers

    for good in ("one", "two"):
        keys.check(Headers({"authorization": f"Bearer {good}"}))
    path.write_text("# none\n")
    for bad in (path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match=bad.name):
            Keys.from_file(bad)


def test_other_origins_may_call_only_where_it_is_said(server: RunningServer, tiny: LLM) -> None:
    headers = {"origin": "http://page.example", "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in server.client.get("/health", headers=headers).headers
    assert server.client.options("/v1/models", headers=headers).status_code == 405
    with running(tiny, Keys(["one"]), cors_origin=("http://page.example",)) as other:
        given = other.client.options("/v1/chat/completions", headers=headers)
        assert given.headers["access-control-allow-origin"] == "http://page.example"
        foreign = other.client.get("/health", headers={"origin": "http://other.example"})
        assert "access-control-allow-origin" not in foreign.headers


@pytest.mark.parametrize(
    "options",
    [
        {"max_queued": 0},
        {"drain": -1.0},
        {"drain": float("nan")},
        {"port": 70000},
        {"metrics": "x"},
        {"log_format": "x"},
    ],
)
def test_options_have_ranges(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        ServerConfig(**options)


def test_an_overload_is_refused_and_the_rest_answered(tiny: LLM) -> None:
    """Many more at once than may wait: each is either answered in full or told to come again (SRV-05)."""
    with running(tiny, max_queued=4) as server:
        statuses: list[int] = []

        def job() -> None:
            with httpx.Client(base_url=server.url, timeout=60) as client:
                body = {"prompt": "the rain", "max_tokens": 40, "ignore_eos": True}
                for _ in range(4):
                    found = client.post("/v1/completions", json=body)
                    statuses.append(found.status_code)
                    if found.status_code == 200:
                        assert found.json()["usage"]["completion_tokens"] == 40

        threads = [threading.Thread(target=job) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(statuses) <= {200, 429} and statuses.count(200) >= 4
        assert server.metric("request_rejected_total", status="429") == statuses.count(429)
        assert server.engine.cache.num_free == server.engine.cache.num_blocks
