"""A file that a command writes when its work is done. Owns that a path is known to be good before the work begins, and
that nothing is left there where the work fails.
"""

from pathlib import Path

from twostroke.errors import ConfigError


def check_writable(path: Path) -> None:
    """Changes nothing: what is there stays, and what is not is not made. Raises ConfigError naming the file."""
    try:
        is_new = not path.exists()
        with path.open("ab"):
            pass
        if is_new:
            path.resolve().unlink()  # the file, and not a link to it
    except OSError as error:
        raise _refusal(path, error) from None


def write_text(path: Path, text: str) -> None:
    """In UTF-8. Raises ConfigError naming the file."""
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise _refusal(path, error) from None


def _refusal(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written: {error.strerror or error}")
