"""`twostroke pull`: what it says and leaves, also when it is interrupted. The fetching itself is tested in weights."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.command_line import invoke, json_of, output_of
from tests.weights.gguf_writer import F32, GGUFWriter
from tests.weights.http_host import Host, serve

from twostroke.cli.fetch_progress import progress_text
from twostroke.errors import FetchError, InvalidRequestError, ModelNotFoundError
from twostroke.weights import download
from twostroke.weights.cache import find_cached
from twostroke.weights.progress import PullProgress

PULL = "import sys; from twostroke.cli.pull import command; command.main(sys.argv[1:])"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A server with a file of about 1 MB, and an empty cache."""
    monkeypatch.setenv("TWOSTROKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "_PAUSE_SECONDS", 0.001)
    writer = GGUFWriter()
    writer.start(1, 0)
    writer.tensor("t", (1 << 18,), F32, 0)
    with serve(Host(writer.body(1 << 20))) as host:
        yield host


@pytest.fixture
def url(host: Host) -> str:
    return f"{host.url}/model.gguf"


def test_fetching_says_where_the_file_is_and_how_it_went(host: Host, url: str) -> None:
    result = invoke("pull", url)
    cached = find_cached(url)
    assert result.exit_code == 0 and cached is not None
    assert result.stdout == f"{url}: fetched and verified, 1.00 MiB, {cached.path}\n"
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"{url}: fetching ")
    assert re.search(r"fetching 1\.00 MiB of 1\.00 MiB, [\d.]+ [KMG]iB/s, 0 s left$", lines[-1])
    assert output_of("pull", url) == f"{url}: was here already, 1.00 MiB, {cached.path}\n"
    assert len(host.requests) == 1


def test_json(host: Host, url: str) -> None:
    first, second = json_of("pull", url), json_of("pull", url)
    cached = find_cached(url)
    assert cached is not None
    assert first == {
        "model": url,
        "path": str(cached.path),
        "bytes": len(host.content),
        "sha256": cached.sha256,
        "license": None,
        "was_cached": False,
    }
    assert second == {**first, "was_cached": True}


def test_ctrl_c_leaves_what_the_next_attempt_resumes(host: Host, url: str, tmp_path: Path) -> None:
    host.delay_seconds = 0.25
    process = subprocess.Popen(
        [sys.executable, "-c", PULL, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    deadline = time.monotonic() + 60
    one = download._CHUNK_BYTES  # is counted once the next is being written
    while not any(path.stat().st_size > one for path in tmp_path.rglob("*.part")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and stdout == ""
    assert (
        stderr.splitlines()[-1] == f"twostroke: interrupted; what is complete is kept, `twostroke pull {url}` resumes"
    )
    assert "Traceback" not in stderr
    assert find_cached(url) is None

    host.delay_seconds = 0
    output_of("pull", url)
    cached = find_cached(url)
    assert cached is not None and cached.path.read_bytes() == host.content
    assert host.ranges[0] is None and re.fullmatch(r"bytes=[1-9]\d*-", host.ranges[1] or "")


def test_on_a_terminal_a_bar_with_rate_and_time_left(host: Host, url: str) -> None:
    host.delay_seconds = 0.03
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PULL, url], stdout=subprocess.PIPE, stderr=child, env={**os.environ, "COLUMNS": "150"}
    )
    os.close(child)
    shown = b""
    try:
        while piece := os.read(parent, 4096):
            shown += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(parent)
    assert process.wait(timeout=60) == 0
    assert process.stdout is not None and process.stdout.read().startswith(f"{url}: fetched".encode())
    process.stdout.close()
    plain = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown).decode()
    assert "━" in plain
    assert re.search(r"fetching.*MiB of 1\.00 MiB, [\d.]+ [KMG]iB/s, \d+ s left", plain, re.DOTALL)


def test_errors_reach_the_caller(host: Host, url: str) -> None:
    assert isinstance(invoke("pull", "smolm2").exception, ModelNotFoundError)
    assert "did you mean smollm2?" in str(invoke("pull", "smolm2").exception)
    error = invoke("pull", __file__).exception
    assert isinstance(error, InvalidRequestError) and "nothing to fetch" in str(error)
    host.refusals = [404]
    assert isinstance(invoke("pull", url).exception, FetchError)
    assert find_cached(url) is None


@pytest.mark.parametrize("name", ["", " ", "~nobody-of-that-name/model.gguf", "a" * 5000, "a\0b"])
def test_names_that_cannot_be_files(name: str) -> None:
    error = invoke("pull", name).exception
    assert isinstance(error, ModelNotFoundError) and str(error).startswith(name[:1].strip() or "'")


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (PullProgress("m", "wait", 0, 100, 0.0), ""),
        (PullProgress("m", "fetch", 0, None, 0.0), "0 B"),
        (PullProgress("m", "fetch", 1 << 20, None, 2048.0), "1.00 MiB, 2.00 KiB/s"),
        (
            PullProgress("m", "fetch", 1 << 20, 3 << 20, float(1 << 14)),
            "1.00 MiB of 3.00 MiB, 16.0 KiB/s, 2:08 min left",
        ),
    ],
)
def test_progress_text(progress: PullProgress, text: str) -> None:
    assert progress_text(progress) == text
