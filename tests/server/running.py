"""A server under test: a tiny model behind real sockets, in a thread of this process. Owns starting and ending it."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import httpx

from twostroke import LLM
from twostroke.engine.engine import Engine
from twostroke.server.auth import Keys
from twostroke.server.config import ServerConfig
from twostroke.server.run import Server, address_of, bind, make_service
from twostroke.server.service import Service

NAME = "tiny"


class RunningServer:
    """`client` talks to it. `service` belongs to its event loop: look at it, and call it through `call`."""

    def __init__(self, llm: LLM, keys: Keys | None = None, **options: Any) -> None:
        self.llm = llm
        self.config = ServerConfig(port=0, **options)
        self.service: Service
        self.server: Server
        self.loop: asyncio.AbstractEventLoop
        self._keys = keys or Keys()
        self._started = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._started.wait(60)
        self.client = httpx.Client(base_url=self.url, timeout=60)

    @property
    def engine(self) -> Engine:
        return self.llm.running.engine

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def chat(self, text: str = "the rain", **body: Any) -> httpx.Response:
        return self.post("/v1/chat/completions", messages=[{"role": "user", "content": text}], **body)

    def complete(self, prompt: Any = "the rain", **body: Any) -> dict[str, Any]:
        response = self.post("/v1/completions", prompt=prompt, **body)
        assert response.status_code == 200, response.text
        return dict(response.json())

    def stream(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """The chunks of a whole stream; its last event must be [DONE]."""
        with self.client.stream("POST", path, json={"stream": True, **body}) as response:
            assert response.status_code == 200, response.read()
            lines = [line for line in response.iter_lines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]

    def metric(self, name: str, **labels: str) -> float:
        """A sample of /metrics; 0 where there is none yet."""
        from prometheus_client.parser import text_string_to_metric_families

        for family in text_string_to_metric_families(self.client.get("/metrics").text):
            for sample in family.samples:
                if sample.name == f"twostroke_{name}" and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return 0.0

    def close(self) -> None:
        self.client.close()
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(setattr, self.server, "should_exit", True)
            self._thread.join(60)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        bound = bind(self.config)
        bound.listen()
        self.url = address_of(bound)
        self.service = make_service(self.llm, self.config, (NAME, "other name"))
        self.server = Server(self.service, self._keys, self.config)
        self._started.set()
        try:
            await self.server.serve(sockets=[bound])
        finally:
            self.service.workers.close()
            self.service.serving.stop()


@contextmanager
def running(llm: LLM, keys: Keys | None = None, **options: Any) -> Iterator[RunningServer]:
    """A server of its own for one test."""
    server = RunningServer(llm, keys, **options)
    try:
        yield server
    finally:
        server.close()
