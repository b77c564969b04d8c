"""Files of a model that consists of several: the one place where a name found inside a file becomes a path.

Owns the rule which paths may be opened, not what is in them.
"""

from pathlib import Path

from twostroke.errors import ModelFileError


def member(directory: Path, name: str, named_by: str) -> Path:
    """The path of the regular file `name` that lies directly in a model's directory.

    `named_by` says where the name comes from, for the message. A symbolic link may not lead out of the directory,
    except from a snapshot of the hub's own cache to the blobs beside it. Raises ModelFileError.
    """
    plain = Path(name).name
    if plain != name or name in ("", ".", "..") or "\\" in name or not name.isprintable():
        raise ModelFileError(f"{named_by} names {name!r}, which is not a plain file name")
    path = directory / name
    try:
        real = path.resolve(strict=True)
    except FileNotFoundError:
        raise ModelFileError(f"{path}: named by {named_by}, but missing") from None
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        raise ModelFileError(f"{path}: {getattr(error, 'strerror', None) or 'links in a circle'}") from None
    if real.parent not in _allowed(directory):
        raise ModelFileError(f"{path}: a link to {real}, outside the model's directory")
    if not real.is_file():
        raise ModelFileError(f"{path}: not a regular file")
    return path


def _allowed(directory: Path) -> tuple[Path, ...]:
    real = directory.resolve()
    is_snapshot = real.parent.name == "snapshots" and real.parent.parent.name.startswith("models--")
    return (real, real.parent.parent / "blobs") if is_snapshot else (real,)
