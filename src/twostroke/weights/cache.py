"""The user's model cache on disk: where models lie, which are there, removing one. Owns no fetching.

Layout: `models/ENTRY/` holds a model file, or several, or a model's directory, and `model.json`, which says what it is;
`locks/ENTRY` is held while an entry changes. A model is in the cache when all its files have their names; the last
gets its own at the very end.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from twostroke.errors import ConfigError, FetchError, ModelNotFoundError

_RECORD = "model.json"


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model in the cache. `model` is the name to ask for it by; `license` is None where its source does not say.

    `path` is its file, its first shard or its directory. `num_bytes` is the size of all its files; `sha256` the sum of
    the file, or where there are several, of the lines "SUM  NAME" that `sha256sum` prints for them, sorted by name.
    """

    model: str
    path: Path
    num_bytes: int
    sha256: str
    license: str | None


def cache_dir() -> Path:
    """`TWOSTROKE_CACHE`, else `~/.cache/twostroke`. It may not exist yet. Raises ConfigError without a home."""
    configured = os.environ.get("TWOSTROKE_CACHE")
    path = Path(os.path.expanduser(configured or "~/.cache/twostroke"))
    if not configured and path.parts[0] == "~":
        raise ConfigError("this user has no home directory to keep models in: set TWOSTROKE_CACHE")
    return path


def entry_dir(model: str) -> Path:
    """The directory of a model's entry: one per name, whatever characters the name has."""
    return cache_dir() / "models" / _entry_name(model)


def find_cached(model: str) -> CachedModel | None:
    """The cached model of that name, if it is there and complete. `hf:owner/name` finds its only cached file."""
    found = _read_entry(entry_dir(model))
    if found is None and model.startswith("hf:"):
        files = [cached for cached in list_cached() if cached.model.startswith(f"{model}/")]
        found = files[0] if len(files) == 1 else None
    return found


def list_cached() -> list[CachedModel]:
    """Every complete model in the cache, by name."""
    entries = (_read_entry(path) for path in (cache_dir() / "models").glob("*"))
    return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.model)


def write_record(cached: CachedModel, files: Mapping[str, int] | None = None) -> None:
    """Describe an entry in its `model.json`, before its last file gets its name. `files` gives the sizes by path in the
    entry's directory; None where `cached.path` is the only one."""
    sizes = {cached.path.name: cached.num_bytes} if files is None else dict(files)
    text = json.dumps({**asdict(cached), "path": cached.path.name, "files": sizes}, indent=1)
    write_atomically(cached.path.with_name(_RECORD), text)


def write_atomically(path: Path, text: str) -> None:
    """Replace a small file so that a reader sees the old or the new text, never a piece."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, "utf-8")
    fresh.replace(path)


def remove(model: str) -> int:
    """Delete a model from the cache, also one that is fetched in part; returns the bytes freed.

    Raises ModelNotFoundError when the cache has nothing of that name, FetchError when it is being fetched.
    """
    cached = find_cached(model)
    directory = cached.path.parent if cached else entry_dir(model)
    if not directory.is_dir():
        names = ", ".join(entry.model for entry in list_cached()) or "nothing"
        raise ModelNotFoundError(f"{model} is not in the cache, which has {names}")
    with locked(cached.model if cached else model, on_wait=None):
        freed = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
        try:
            import shutil  # and with it the compressors; few runs remove a model

            shutil.rmtree(directory)
        except OSError as error:
            raise FetchError(f"{directory}: {error.strerror}") from None
    return freed


@contextmanager
def locked(model: str, on_wait: Callable[[], None] | None) -> Iterator[None]:
    """Hold a model's lock, which a process gives up even when it is killed.

    Where another process has it: call `on_wait` and wait, or raise FetchError when there is no `on_wait`.
    """
    import fcntl

    path = cache_dir() / "locks" / _entry_name(model)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise FetchError(f"{path}: {error.strerror}") from None
    with file:  # closing gives the lock up
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is None:
                raise FetchError(f"{model} is being fetched by another process") from None
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _entry_name(model: str) -> str:
    plain = re.sub(r"[^a-z0-9._-]+", "-", model.lower()).strip(".-")
    if plain == model:
        return plain
    import hashlib

    return f"{plain[-80:]}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"


def _read_entry(directory: Path) -> CachedModel | None:
    """What `model.json` describes, if all files are there in the sizes it says."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        row = json.loads((directory / _RECORD).read_text("utf-8"))
        path = directory / Path(row["path"]).name
        files = row.get("files", {path.name: row["num_bytes"]})
        if all((directory / name).stat().st_size == num_bytes for name, num_bytes in files.items()):
            return CachedModel(row["model"], path, row["num_bytes"], row["sha256"], row["license"])
    return None
