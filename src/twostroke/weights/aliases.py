"""The models that have a name of their own, from `aliases.toml`. Owns what they are, not where they are cached."""

from pathlib import Path
from typing import Any, NamedTuple

DEFAULT_MODEL = "smollm2"


class Part(NamedTuple):
    """A stretch of a model file: `member` of the wheel of `package` (a pinned requirement)."""

    package: str
    member: str


class Alias(NamedTuple):
    """A named model: the file its parts make, and that file's size and SHA-256."""

    name: str
    file: str
    num_bytes: int
    sha256: str
    license: str
    parts: tuple[Part, ...]


def load_aliases() -> dict[str, Alias]:
    """All aliases by name."""
    import tomllib  # only needed once a model is looked up

    table = tomllib.loads(Path(__file__).with_name("aliases.toml").read_text("utf-8"))
    return {name: _alias(name, **row) for name, row in table.items()}


def _alias(name: str, *, package: str, member: str, num_parts: int, **fields: Any) -> Alias:
    parts = tuple(Part(package.format(n=n), member.format(n=n)) for n in range(1, num_parts + 1))
    return Alias(name, parts=parts, **fields)
