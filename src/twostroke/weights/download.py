"""One file over HTTP(S), resumed at the byte where it was cut. Owns requests and retries, not names or sums."""

import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPResponse

from twostroke.errors import FetchError, in_words
from twostroke.weights.partial_file import PartialFile

_CHUNK_BYTES = 256 << 10
_CHECKPOINT_BYTES = 16 << 20
_TIMEOUT_SECONDS = 30.0
_PAUSE_SECONDS = 0.5  # before the first retry; each further fruitless one doubles it
# Attempts in a row that bring no byte before giving up.
_FRUITLESS_ATTEMPTS = 4


def download(url: str, part_file: PartialFile, on_bytes: Callable[[int, int | None], None]) -> int:
    """Append to `part_file` what it lacks of the file at a URL; returns the file's size as the server says it.

    `on_bytes` hears the bytes that are there and the size (None while unknown). The bytes already there are kept only
    when the server confirms by its ETag or date that the file is still the same. Raises FetchError, keeping the bytes.
    """
    fruitless = 0
    while True:
        before = part_file.num_bytes
        try:
            return _attempt(url, part_file, on_bytes)
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code} {error.reason}"
            fatal = error.code < 500 and error.code not in (408, 429)
        except (OSError, http.client.HTTPException) as error:
            reason, fatal = _words(error), False
        except ValueError as error:
            reason, fatal = str(error), True
        fruitless = 0 if part_file.num_bytes > before else fruitless + 1
        if fatal or fruitless >= _FRUITLESS_ATTEMPTS:
            kept = f"; {part_file.num_bytes:,} bytes are kept, and the next attempt resumes" if part_file.mark else ""
            raise FetchError(f"{url}: {reason}{kept}")
        time.sleep(_PAUSE_SECONDS * 2**fruitless)


def _attempt(url: str, part_file: PartialFile, on_bytes: Callable[[int, int | None], None]) -> int:
    """One request. Raises OSError or HTTPException when the connection fails before the end."""
    headers = {"Accept-Encoding": "identity"}
    if part_file.num_bytes and part_file.mark:
        headers |= {"Range": f"bytes={part_file.num_bytes}-", "If-Range": part_file.mark}
    elif part_file.num_bytes:
        part_file.restart()
    request = urllib.request.Request(url, headers=headers)
    try:
        response: HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{part_file.num_bytes}":
            return part_file.num_bytes  # nothing was missing
        if error.code == 416 and part_file.num_bytes:
            part_file.restart()
            raise ConnectionError("the file on the server has changed") from None
        raise
    with response:
        total = _begin(response, part_file)
        _receive(response, part_file, lambda num_bytes: on_bytes(num_bytes, total))
    if total is not None and part_file.num_bytes < total:
        raise ConnectionError(f"the connection ended at byte {part_file.num_bytes:,} of {total:,}")
    return part_file.num_bytes


def _begin(response: HTTPResponse, part_file: PartialFile) -> int | None:
    """Line the part up with what the server is about to send; returns the whole file's size if it says it."""
    length = response.headers.get("Content-Length")
    if response.status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != part_file.num_bytes:
            raise ConnectionError(f"the server sent range {response.headers.get('Content-Range')!r}")
        return int(found[2])
    if part_file.num_bytes:
        part_file.restart()
    part_file.mark = _validator(response)
    return int(length) if length is not None else None


def _words(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return cause if isinstance(cause, str) else in_words(cause)


def _receive(response: HTTPResponse, part_file: PartialFile, on_bytes: Callable[[int], None]) -> None:
    """Append the body; whatever interrupts it, what came is kept if the server gave a way to ask for the rest."""
    unsaved = 0
    try:
        while chunk := response.read(_CHUNK_BYTES):
            part_file.write(chunk)
            on_bytes(part_file.num_bytes)
            unsaved += len(chunk)
            if unsaved >= _CHECKPOINT_BYTES:
                part_file.checkpoint(part_file.mark)
                unsaved = 0
    finally:
        if part_file.mark:
            part_file.checkpoint(part_file.mark)


def _validator(response: HTTPResponse) -> str:
    """What proves later that the file is the same: a strong ETag, else its date, else nothing."""
    etag: str = response.headers.get("ETag", "")
    if etag and not etag.startswith("W/"):
        return etag
    return str(response.headers.get("Last-Modified", ""))
