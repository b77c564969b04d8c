"""A headless Chromium, driven over its debugging pipe. Owns the process and the protocol; needs no package.

The pipe is the browser's file descriptors 3 and 4, messages are JSON with a NUL after each.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--remote-debugging-pipe", "--disable-background-networking", "--disable-component-update", "--mute-audio"),
)
_SECONDS = 30.0


class Browser:
    """One page of one browser. `requests` are the URLs it asked for, `faults` what its console had to say."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (to_browser, from_browser)]
        actions: list[Any] = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, end, number) for end, number in zip(ends, (3, 4), strict=True)]
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._pid = os.posix_spawn(CHROMIUM, command, dict(os.environ), file_actions=actions, setsid=True)
        for end in (to_browser, from_browser, *ends):
            os.close(end)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.faults: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self._keep(answer)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise's, once it has one."""
        options = {"expression": script, "awaitPromise": True, "returnByValue": True, "userGesture": True}
        done = self.call("Runtime.evaluate", **options)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, script: str, seconds: float = _SECONDS) -> Any:
        """Waits until an expression is true; its value."""
        return wait_for(lambda: self.run(script), script, seconds)

    def press(self, key: str, **more: Any) -> None:
        """One key, down and up."""
        text = {"Enter": "\r"}.get(key)
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        options = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], **more}
        self.call("Input.dispatchKeyEvent", type="keyDown", **options, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **options)

    def write(self, text: str) -> None:
        """Text into whatever has the focus."""
        self.call("Input.insertText", text=text)

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """A window of that size, in a light or dark theme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)  # its profile is of no use to anybody
        os.waitpid(self._pid, 0)
        os.close(self._out)
        os.close(self._in)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + _SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser says nothing"
            piece = os.read(self._in, 1 << 20)
            assert piece, "the browser has ended"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _keep(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.faults.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.faults.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")


def wait_for(value: Callable[[], Any], what: str, seconds: float = _SECONDS) -> Any:
    """The first value that is true."""
    deadline = time.monotonic() + seconds
    while not (found := value()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)
    return found
