"""A GGUF model in several files: which they are, and that they belong together. Owns no file handle.

Shard `i` of `n` is NAME-0000i-of-0000n.gguf and says so in `split.no` (from 0), `split.count` and
`split.tensors.count` (of all shards together). The first has the model's metadata.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from twostroke.errors import ModelFileError
from twostroke.weights.directory import member
from twostroke.weights.gguf_header import MAX_ENTRIES, Header
from twostroke.weights.source import TensorInfo

_SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def shard_names(name: str) -> list[str]:
    """The file names of all shards of the model that a file named `name` is a shard of; `[name]` for any other name."""
    found = _SHARD_NAME.fullmatch(name)
    if found is None:
        return [name]
    return [f"{found['stem']}-{number:05}-of-{found['count']}.gguf" for number in range(1, int(found["count"]) + 1)]


def shard_paths(path: Path, header: Header) -> list[Path]:
    """All files of the model that `path` is a file of, in order; `[path]` when it is whole.

    Raises ModelFileError when the name and `split.count` disagree or a shard is missing.
    """
    count = _integer(path, header, "split.count", default=1)
    if count == 1:
        return [path]
    found = _SHARD_NAME.fullmatch(path.name)
    if found is None or int(found["count"]) != count:
        raise ModelFileError(
            f"{path}: 'split.count' is {count:,}, so the file must have a name like NAME-00001-of-{count:05}.gguf"
        )
    return [member(path.parent, name, f"{path.name} (one of {count:,} shards)") for name in shard_names(path.name)]


def joined(shards: Iterable[tuple[Path, Header]], count: int) -> Header:
    """One header for `count` shards: the first's metadata, the tensors of all, each with the offset in its own file.

    Raises ModelFileError naming the shard that does not belong.
    """
    num_bytes, tensors, totals = 0, dict[str, TensorInfo](), dict[Path, int]()
    first: Header | None = None
    for number, (path, header) in enumerate(shards):
        first = first or header
        for key, expected in (("split.no", number), ("split.count", count)):
            found = _integer(path, header, key)
            if found != expected:
                raise ModelFileError(f"{path}: {key!r} is {found:,}; it must be {expected:,} in this shard")
        twice = tensors.keys() & header.tensors.keys()
        if twice:
            raise ModelFileError(f"{path}: tensor {min(twice)!r} is also in an earlier shard")
        num_bytes += header.num_bytes
        tensors |= header.tensors
        if "split.tensors.count" in header.metadata:
            totals[path] = _integer(path, header, "split.tensors.count")
        if len(tensors) > MAX_ENTRIES:
            raise ModelFileError(f"{path}: the shards have over {MAX_ENTRIES:,} tensors")
    for path, total in totals.items():
        if total != len(tensors):
            raise ModelFileError(f"{path}: 'split.tensors.count' is {total:,}; the shards have {len(tensors):,}")
    if first is None:
        raise ValueError("no shards")
    return first._replace(num_bytes=num_bytes, tensors=tensors)


def _integer(path: Path, header: Header, key: str, default: int | None = None) -> int:
    value = header.metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        kind = "missing" if value is None else f"not an integer but {type(value).__name__}"
        raise ModelFileError(f"{path}: metadata {key!r} is {kind}")
    if value < 0 or (key == "split.count" and value == 0):
        raise ModelFileError(f"{path}: metadata {key!r} is {value:,}")
    return value
