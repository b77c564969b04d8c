"""Fetching over HTTP: resuming at the byte, a file that changes, what is left behind when things go wrong."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.weights.http_host import Host, serve

from twostroke.errors import FetchError, ModelNotFoundError
from twostroke.weights import download
from twostroke.weights.cache import find_cached, list_cached
from twostroke.weights.fetch import pull, resolve
from twostroke.weights.progress import PullProgress

PULL = "import sys; from twostroke.weights.fetch import pull; print(pull(sys.argv[1], progress=lambda p: None))"

LIMITED_PULL = """
import resource, sys
from twostroke.errors import FetchError
from twostroke.weights.fetch import pull
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    pull(sys.argv[1], progress=lambda p: None)
except FetchError as error:
    print(error)
"""


@pytest.fixture
def host(model_bytes: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(download, "_PAUSE_SECONDS", 0.001)
    with serve(Host(model_bytes)) as host:
        yield host


def ignore(progress: PullProgress) -> None:
    """For a fetch that nobody watches."""


def gguf_files(cache: Path) -> list[Path]:
    return list(cache.rglob("*.gguf"))


def test_a_whole_file(host: Host, cache: Path) -> None:
    seen: list[PullProgress] = []
    url = f"{host.url}/model.gguf"
    with pytest.raises(ModelNotFoundError, match=f"{url} is not fetched yet: `twostroke pull {url}`"):
        resolve(url)
    path = pull(url, progress=seen.append)
    assert path.read_bytes() == host.content and path.is_relative_to(cache)
    assert resolve(url) == path == pull(url, progress=ignore)
    assert [cached.path for cached in list_cached()] == [path]
    assert len(host.requests) == 1
    assert (seen[-1].num_bytes, seen[-1].total_bytes) == (len(host.content), len(host.content))
    assert seen[-1].bytes_per_second > 0
    assert sorted(left.name for left in path.parent.iterdir()) == ["model.gguf", "model.json"]


def test_cut_connections_resume_at_the_byte(host: Host) -> None:
    host.cuts = [300_000, 1, 400_000]
    path = pull(f"{host.url}/model.gguf", progress=ignore)
    assert path.read_bytes() == host.content
    assert host.ranges == [None, "bytes=300000-", "bytes=300001-", "bytes=700001-"]


def test_giving_up_keeps_the_bytes_and_the_next_pull_resumes(host: Host, cache: Path) -> None:
    host.cuts = [500_000, 0, 0, 0, 0, 0]
    url = f"{host.url}/model.gguf"
    with pytest.raises(FetchError, match=r"the connection ended at byte 500,000 of 1,048,\d+; 500,000 bytes are kept"):
        pull(url, progress=ignore)
    assert not gguf_files(cache) and find_cached(url) is None
    host.cuts = []
    host.requests.clear()
    assert pull(url, progress=ignore).read_bytes() == host.content
    assert host.ranges == ["bytes=500000-"]


def test_a_file_that_changed_meanwhile_is_fetched_anew(host: Host) -> None:
    host.cuts = [500_000, 0, 0, 0, 0, 0]
    url = f"{host.url}/model.gguf"
    with pytest.raises(FetchError):
        pull(url, progress=ignore)
    host.cuts, host.etag = [], '"v2"'
    host.content = host.content[:-1] + bytes([host.content[-1] ^ 255])
    assert pull(url, progress=ignore).read_bytes() == host.content


@pytest.mark.parametrize("etag", [None, 'W/"v1"'])
def test_without_proof_that_the_file_is_the_same_it_starts_anew(host: Host, etag: str | None) -> None:
    host.etag = etag
    host.cuts = [500_000]
    assert pull(f"{host.url}/model.gguf", progress=ignore).read_bytes() == host.content
    assert host.ranges == [None, None]


def test_a_server_without_ranges(host: Host) -> None:
    host.ignores_ranges = True
    host.cuts = [500_000]
    assert pull(f"{host.url}/model.gguf", progress=ignore).read_bytes() == host.content


def test_a_busy_server_is_asked_again_a_refusal_is_final(host: Host) -> None:
    host.refusals = [503, 429]
    assert pull(f"{host.url}/model.gguf", progress=ignore).read_bytes() == host.content
    host.requests.clear()
    with pytest.raises(FetchError, match=r"absent\.gguf: HTTP 404"):
        pull(f"{host.url}/absent.gguf", progress=ignore)
    assert len(host.requests) == 1


def test_a_host_that_is_not_there_in_words(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/model.gguf"
        with pytest.raises(FetchError) as caught:
            pull(url, progress=ignore)
    assert str(caught.value) == f"{url}: Connection refused"
    with pytest.raises(FetchError, match=r"^http:///model\.gguf: no host given$"):
        pull("http:///model.gguf", progress=ignore)


def test_bytes_damaged_on_disk_are_not_resumed(host: Host, cache: Path) -> None:
    host.cuts = [500_000, 0, 0, 0, 0, 0]
    url = f"{host.url}/model.gguf"
    with pytest.raises(FetchError):
        pull(url, progress=ignore)
    (part,) = cache.rglob("*.part")
    content = bytearray(part.read_bytes())
    content[1000] ^= 1
    part.write_bytes(content)
    host.cuts = []
    assert pull(url, progress=ignore).read_bytes() == host.content


def test_what_is_no_model_gets_no_name(host: Host, cache: Path) -> None:
    host.content = b"<html>please log in</html>" * 100
    with pytest.raises(FetchError, match=r"is not usable: .*not a GGUF file") as caught:
        pull(f"{host.url}/model.gguf", progress=ignore)
    assert "\n" not in str(caught.value)
    assert not list(cache.rglob("model.gguf*"))
    with pytest.raises(ModelNotFoundError, match=r"not the address of a \.gguf file"):
        pull(f"{host.url}/page.html", progress=ignore)


def test_ctrl_c_leaves_a_part_and_the_next_pull_resumes(host: Host, cache: Path) -> None:
    def interrupt(progress: PullProgress) -> None:
        if progress.num_bytes > 200_000:
            raise KeyboardInterrupt

    host.delay_seconds = 0.02
    url = f"{host.url}/model.gguf"
    with pytest.raises(KeyboardInterrupt):
        pull(url, progress=interrupt)
    assert not gguf_files(cache)
    assert pull(url, progress=ignore).read_bytes() == host.content
    asked = host.ranges[-1]
    assert asked is not None and int(asked[6:-1]) > 200_000


def start_pull(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PULL, url], stdout=subprocess.PIPE, text=True, env=os.environ.copy())


def test_a_killed_process_leaves_nothing_under_the_name(host: Host, cache: Path) -> None:
    host.delay_seconds = 0.1
    url = f"{host.url}/model.gguf"
    process = start_pull(url)
    deadline = time.monotonic() + 20
    while not any(path.stat().st_size for path in cache.rglob("*.part")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(cache.rglob("*.part")) and not gguf_files(cache)
    host.delay_seconds = 0
    assert pull(url, progress=ignore).read_bytes() == host.content


def test_two_processes_at_once_fetch_once(host: Host) -> None:
    host.delay_seconds = 0.03
    url = f"{host.url}/model.gguf"
    both = [start_pull(url) for _ in range(2)]
    answers = [process.communicate()[0].strip() for process in both]
    assert answers[0] == answers[1]
    assert Path(answers[0]).read_bytes() == host.content
    assert host.ranges == [None]


def test_a_full_disk_is_one_line(host: Host, cache: Path) -> None:
    """A limit on the size of files stands for the disk: the same call fails in the same place."""
    command = [sys.executable, "-c", LIMITED_PULL, f"{host.url}/model.gguf"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.count("\n") == 1 and "model.gguf.part: File too large" in output
    assert not gguf_files(cache)


def test_a_cache_that_cannot_be_written_is_named(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TWOSTROKE_CACHE", str(tmp_path / "file"))
    with pytest.raises(FetchError, match=rf"{tmp_path}/file\S*: Not a directory"):
        pull(f"{host.url}/model.gguf", progress=ignore)
