"""A fault that ends the engine's thread, or the reading of one answer: everyone concerned is told, and at once."""

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.running import RunningServer, running
from tests.server.test_life import LONG, RawClient, stopping_when, until

from twostroke import LLM
from twostroke.errors import EngineStoppedError
from twostroke.llm.answer_text import AnswerText
from twostroke.llm.embedding import PooledRows
from twostroke.server.app import build_app
from twostroke.server.auth import Keys


def faulty(*_: Any) -> Any:
    raise ArithmeticError("an injected fault")


def test_everyone_is_told_at_once_and_the_server_ends(tiny_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One streams, one waits for its whole answer, one for vectors, one in the queue: none waits for a deadline."""
    caplog.set_level(logging.ERROR)
    with LLM(tiny_path, threads=1, max_batch=2) as llm, running(llm) as server:
        with stopping_when(server, lambda: server.engine.num_running == 1) as stopped:
            stream = RawClient(server, prompt="the rain", stream=True, **LONG)
            assert stopped.wait(60)
            others = [RawClient(server, prompt="the rain", **LONG) for _ in range(2)]
            others.append(RawClient(server, "/v1/embeddings", input=["the rain"] * 3))
            until(lambda: len(server.service.lifecycle._running) == 4)
            server.engine._scheduler.schedule = faulty  # type: ignore[method-assign]
            started = time.monotonic()
        assert b'"code": "engine_stopped"' in stream.read_until(b"data: [DONE]")
        for other in others:
            head, _, data = other.read_until(b"}}").partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 500 ")
            assert json.loads(data)["error"]["code"] == "engine_stopped"
        server._thread.join(60)
        assert not server._thread.is_alive() and time.monotonic() - started < 50  # the deadline of a request is 600 s
        assert isinstance(server.service.serving.death.result(), ArithmeticError)
        (logged,) = [record for record in caplog.records if record.exc_info]
        assert "the engine has stopped: ArithmeticError: an injected fault" in logged.getMessage()
        assert asyncio.run(statuses(server)) == [503, 503, 503]
        with pytest.raises(EngineStoppedError):
            llm.generate("the rain", max_tokens=1)


async def statuses(server: RunningServer) -> list[int]:
    """Of /health, /ready and a completion, asked of the application itself: the server listens no more."""
    transport = httpx.ASGITransport(build_app(server.service, Keys()))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        answers = [await client.get("/health"), await client.get("/ready")]
        answers.append(await client.post("/v1/completions", json={"prompt": "the rain"}))
    return [answer.status_code for answer in answers]


def test_a_fault_in_reading_one_answer_is_that_answers_alone(tiny: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tiny) as server:
        expected = server.complete(temperature=0, max_tokens=30)["choices"]
        for kind, path, name, body in (
            (AnswerText, "/v1/completions", "push", {"prompt": "the rain", "max_tokens": 30}),
            (AnswerText, "/v1/completions", "flush", {"prompt": "the rain", "max_tokens": 30}),
            (PooledRows, "/v1/embeddings", "take", {"input": "the rain"}),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(kind, name, faulty)
                started = time.monotonic()
                response = server.post(path, **body)
                assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
                assert time.monotonic() - started < 50
            assert server.complete(temperature=0, max_tokens=30)["choices"] == expected
        assert server.client.get("/health").status_code == 200
        until(lambda: server.engine.cache.num_free == server.engine.cache.num_blocks)
