"""A server that stands for the hub, and a process that pulls from it. Owns test behaviour only.

A process, because the hub's library reads the hub's address once, when it is imported; one for all tests, because that
import takes longer than any of them.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.weights.http_host import Host, serve

_PULL = """
import os, sys
from twostroke.errors import TwostrokeError
from twostroke.weights.fetch import pull, resolve
for line in sys.stdin:
    cache, model = line.rstrip().split("\\t")
    os.environ["TWOSTROKE_CACHE"] = cache
    try:
        path = pull(model, progress=lambda p: None)
        assert resolve(model) == path
        print(path, flush=True)
    except TwostrokeError as error:
        print(type(error).__name__, error, flush=True)
"""


@dataclass
class Hub(Host):
    """A Host whose files a process of its own is told to pull."""

    process: subprocess.Popen[str] | None = None

    def begin(self, content: bytes) -> None:
        """As new, for another test."""
        self.content, self.cuts, self.extra, self.requests = content, [], {}, []

    def pull(self, model: str) -> str:
        """The path that it gives, or its error's name and text. Into this process's cache of the moment."""
        assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{os.environ['TWOSTROKE_CACHE']}\t{model}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip()


@contextmanager
def serve_hub() -> Iterator[Hub]:
    hub = Hub(b"")
    with serve(hub):
        environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_TELEMETRY": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", _PULL], text=True, env=environment, **pipes) as hub.process:
            yield hub
            assert hub.process.stdin is not None
            hub.process.stdin.close()
