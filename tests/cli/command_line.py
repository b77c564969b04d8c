"""Runs one command in this process, and puts models into a cache. Owns test plumbing only."""

import hashlib
import json
from importlib import import_module
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from twostroke.weights.cache import CachedModel, entry_dir, write_record


def invoke(name: str, *arguments: str, text: str | bytes | None = None) -> Result:
    """The result of `twostroke NAME ARGUMENTS`; an error of the package is its `exception`. `text` is stdin."""
    command = import_module(f"twostroke.cli.{name}").command
    return CliRunner().invoke(command, list(arguments), input=text, prog_name=f"twostroke {name}")


def output_of(name: str, *arguments: str, text: str | bytes | None = None) -> str:
    """stdout of a command that must succeed."""
    result = invoke(name, *arguments, text=text)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def json_of(name: str, *arguments: str, text: str | bytes | None = None) -> dict[str, Any]:
    """The one JSON object that a command with --json prints."""
    found: dict[str, Any] = json.loads(output_of(name, *arguments, "--json", text=text), parse_constant=_refuse)
    return found


def put_in_cache(model: str, content: bytes, license_name: str | None = None) -> Path:
    """A model as a finished fetch leaves it."""
    path = entry_dir(model) / "model.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    write_record(CachedModel(model, path, len(content), hashlib.sha256(content).hexdigest(), license_name))
    return path


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
