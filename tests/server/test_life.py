"""Clients that leave, stall or wait; deadlines; signals. The engine is held between two steps to fix the state."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
from tests.server.running import RunningServer, running

from twostroke import LLM
from twostroke.program.phase import Phase

LONG: dict[str, Any] = {"temperature": 0, "max_tokens": 1500, "ignore_eos": True}


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


class RawClient:
    """A socket that has sent a request; what comes back is read by hand."""

    def __init__(
        self, server: RunningServer, path: str = "/v1/completions", *, buffer: int | None = None, **body: Any
    ) -> None:
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
        self.socket.settimeout(60)
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        self.socket.sendall(head.encode() + data)

    def read_until(self, mark: bytes) -> bytes:
        data = b""
        while mark not in data:
            piece = self.socket.recv(65536)
            assert piece, data[-500:]
            data += piece
        return data

    def rest(self) -> bytes:
        data = b""
        try:
            while piece := self.socket.recv(65536):
                data += piece
        except ConnectionError:
            pass
        return data


@pytest.fixture
def held(server: RunningServer) -> Iterator[RunningServer]:
    """The shared server, idle at first and at the end, all blocks free."""
    until(lambda: server.service.lifecycle.num_exchanges == 0 and not server.engine.has_work)
    yield server
    until(lambda: server.service.lifecycle.num_exchanges == 0 and not server.engine.has_work)
    assert server.engine.cache.num_free == server.engine.cache.num_blocks


def steps(server: RunningServer) -> int:
    return server.llm.totals(Phase.PREFILL).steps + server.llm.totals(Phase.DECODE).steps


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_the_queue_is_never_started(held: RunningServer, stream: bool) -> None:
    """Case SRV-03."""
    before = steps(held)
    with held.llm.running.loop.paused():
        client = RawClient(held, prompt="the rain", stream=stream, **LONG)
        until(lambda: held.service.admission.num_queued == 1)
        client.socket.close()
        until(lambda: held.service.lifecycle.num_exchanges == 0)
    until(lambda: not held.engine.has_work)
    assert steps(held) == before


@contextmanager
def stopping_when(server: RunningServer, condition: Callable[[], bool]) -> Iterator[Event]:
    """The engine stops after the first step that leaves the condition true, which sets the event; on leaving it goes
    on. However busy the machine, the state is that one."""
    engine, reached, leaves = server.engine, Event(), Event()
    finish = engine.finish

    def finish_and_stop(_goes_on: Callable[[], bool]) -> None:
        finish()
        engine._enter()  # the ledger has the step before anybody looks
        if not reached.is_set() and condition():
            reached.set()
            leaves.wait(60)

    engine.finish = finish_and_stop  # type: ignore[method-assign]
    try:
        yield reached
    finally:
        leaves.set()
        engine.finish = finish  # type: ignore[method-assign]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_worked_for_no_more(held: RunningServer, stream: bool) -> None:
    """Case SRV-01."""
    with stopping_when(held, lambda: held.engine.num_running == 1) as stopped:
        client = RawClient(held, prompt="the rain", stream=stream, **LONG)
        assert stopped.wait(60)
        client.socket.close()
        until(lambda: held.service.lifecycle.num_exchanges == 0)
        before = steps(held)
    until(lambda: not held.engine.has_work)
    assert steps(held) == before
    assert held.metric("request_cancelled_total", cause="disconnect") > 0


def test_a_client_that_leaves_in_its_prefill(tiny_path: Any) -> None:
    with LLM(tiny_path, threads=1, max_step_tokens=4) as llm, running(llm) as server:
        with stopping_when(server, lambda: llm.totals(Phase.PREFILL).rows > 8) as stopped:
            client = RawClient(server, prompt=[5] * 1000, stream=True, **{**LONG, "max_tokens": 8})
            assert stopped.wait(60)
            client.socket.close()
            until(lambda: server.service.lifecycle.num_exchanges == 0)
            rows = llm.totals(Phase.PREFILL).rows
        until(lambda: not server.engine.has_work)
        assert llm.totals(Phase.PREFILL).rows == rows < 1000


def test_silence_is_broken_by_comments(tiny: LLM) -> None:
    with running(tiny, keep_alive=0.05) as server:
        with tiny.running.loop.paused():
            client = RawClient(server, prompt="the rain", stream=True, max_tokens=3)
            assert b"data:" not in client.read_until(b": keep-alive\n\n")
            client.read_until(b": keep-alive\n\n")
        client.read_until(b"data: [DONE]")


def test_progress_is_told_where_it_is_asked_for(tiny: LLM) -> None:
    with running(tiny) as server:
        with tiny.running.loop.paused():
            client = RawClient(server, prompt=[5, 6, 7], stream=True, max_tokens=3, return_progress=True)
            data = client.read_until(b"}}\n\n")
            event = json.loads(data.partition(b"data: ")[2].partition(b"\n")[0])
            assert event["prompt_progress"] == {"total": 3, "processed": 0} and event["choices"] == []
        client.read_until(b"data: [DONE]")


def test_an_answer_that_takes_too_long_ends(tiny: LLM) -> None:
    with running(tiny, request_timeout=0.1) as server:
        with tiny.running.loop.paused():
            whole = server.chat(max_tokens=5)
            assert (whole.status_code, whole.json()["error"]["code"]) == (504, "request_timeout")
            client = RawClient(server, prompt="the rain", stream=True, **LONG)
            data = client.read_until(b"data: [DONE]")
            assert b'"code": "request_timeout"' in data
        until(lambda: not server.engine.has_work)


def test_a_reader_that_takes_nothing_is_cut(tiny: LLM) -> None:
    with running(tiny, stall_timeout=0.3) as server:
        client = RawClient(server, prompt="the rain", stream=True, buffer=4096, logprobs=20, **LONG)
        until(lambda: server.metric("http_requests_total", path="/v1/completions") == 1)
        assert b"[DONE]" not in client.rest()
        assert server.complete(max_tokens=1)["usage"]["completion_tokens"] == 1


def end(server: RunningServer) -> None:
    """As a signal does."""
    server.loop.call_soon_threadsafe(server.server._end, "SIGTERM")


def test_draining_finishes_what_runs_and_takes_nothing_new(tiny: LLM) -> None:
    with running(tiny) as server:
        assert server.client.get("/ready").status_code == 200
        with tiny.running.loop.paused():
            client = RawClient(server, prompt="the rain", stream=True, **{**LONG, "max_tokens": 20})
            until(lambda: server.service.admission.num_queued == 1)
            end(server)
            until(lambda: server.client.get("/ready").status_code == 503)
            assert server.client.get("/health").status_code == 200
            refused = server.chat(max_tokens=1)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
            assert refused.headers["retry-after"]
        assert b'"finish_reason":"length"' in client.read_until(b"data: [DONE]")
        server._thread.join(60)
        assert not server._thread.is_alive()


@pytest.mark.parametrize("signals", [1, 2])
def test_the_end_of_patience_or_a_second_signal_cuts(tiny: LLM, signals: int) -> None:
    with running(tiny, drain=0.2 if signals == 1 else 60.0) as server, tiny.running.loop.paused():
        client = RawClient(server, prompt="the rain", stream=True, **LONG)
        until(lambda: server.service.admission.num_queued == 1)
        for _ in range(signals):
            end(server)
        assert b'"code": "shutting_down"' in client.read_until(b"data: [DONE]")
        server._thread.join(60)
        assert not server._thread.is_alive()


def test_request_ids_are_the_clients_or_new(server: RunningServer) -> None:
    given = server.client.get("/health", headers={"x-request-id": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    new = {server.client.get("/health", headers={"x-request-id": bad}).headers["x-request-id"] for bad in ("", "a b")}
    assert len(new) == 2 and all(name.startswith("req-") for name in new)


def test_embeddings_end_with_their_client_and_in_time(tiny: LLM) -> None:
    with running(tiny, request_timeout=0.3) as server, tiny.running.loop.paused():
        late = server.post("/v1/embeddings", input=["the rain"] * 40)
        assert (late.status_code, late.json()["error"]["code"]) == (504, "request_timeout")
    with running(tiny) as server:
        with tiny.running.loop.paused():
            client = RawClient(server, "/v1/embeddings", input=["the rain"] * 40)
            until(lambda: server.service.lifecycle.num_exchanges == 1)
            client.socket.close()
            until(lambda: server.service.lifecycle.num_exchanges == 0)
        until(lambda: not server.engine.has_work)
        assert server.metric("http_requests_total", path="/v1/embeddings", status="499") == 1
        assert server.post("/v1/embeddings", input="the rain").status_code == 200
