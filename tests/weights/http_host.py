"""A web server on this machine that can cut connections, change its file, or refuse. Owns test behaviour only."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Host:
    """What the server has and how it behaves; `requests` is what it was asked, as (method, path, Range)."""

    content: bytes
    etag: str | None = '"v1"'
    cuts: list[int] = field(default_factory=list)  # bytes to send before cutting, for each of the next responses
    refusals: list[int] = field(default_factory=list)  # HTTP status of each of the next responses
    ignores_ranges: bool = False
    delay_seconds: float = 0.0  # between pieces of 64 KiB
    extra: dict[str, tuple[dict[str, str], bytes, int]] = field(default_factory=dict)  # path: headers, body, status
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    url: str = ""

    @property
    def ranges(self) -> list[str | None]:
        return [asked for method, path, asked in self.requests if method == "GET" and path.endswith("model.gguf")]


@contextmanager
def serve(host: Host) -> Iterator[Host]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: _Handler(host, *args))
    server.daemon_threads = True
    host.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, host: Host, *args: Any) -> None:
        self.host = host
        super().__init__(*args)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Tests print nothing."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        host, asked = self.host, self.headers.get("Range")
        host.requests.append((self.command, self.path, asked))
        path = self.path.partition("?")[0]
        if path in host.extra:
            headers, body, status = host.extra[path]
            self._headers(status, {**headers, "Content-Length": str(len(body))})
            if with_body:
                self.wfile.write(body)
        elif not path.endswith("model.gguf"):
            self.send_error(404)
        elif host.refusals:
            self.send_error(host.refusals.pop(0))
        else:
            self._send_file(asked, with_body)

    def _send_file(self, asked: str | None, with_body: bool) -> None:
        host, start = self.host, 0
        found = re.fullmatch(r"bytes=(\d+)-", asked or "")
        if found and not host.ignores_ranges and self.headers.get("If-Range") == host.etag:
            start = int(found[1])
        size = len(host.content)
        if start >= size:
            self._headers(416, {"Content-Range": f"bytes */{size}", "Content-Length": "0"})
            return
        headers = {"Content-Length": str(size - start)} | ({"ETag": host.etag} if host.etag else {})
        if start:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        self._headers(206 if start else 200, headers)
        if with_body:
            end = start + host.cuts.pop(0) if host.cuts else size
            for at in range(start, end, 64 << 10):
                self.wfile.write(host.content[at : min(end, at + (64 << 10))])
                time.sleep(host.delay_seconds)

    def _headers(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
