"""What deploy/ runs is what the command line accepts."""

import json
import re
import shlex
from pathlib import Path

import click

from twostroke.cli.serve import command
from twostroke.server.config import ServerConfig

DEPLOY = Path(__file__).parents[1] / "deploy"


def options_of(words: list[str]) -> dict[str, object]:
    """The options of `twostroke serve WORDS...`. Raises where one is unknown or has a wrong value."""
    assert words[0] == "serve"
    return command.make_context("serve", words[1:]).params


def test_the_image_serves_where_its_health_is_asked() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    (words,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    options = options_of(json.loads(words))
    assert options["host"] == "0.0.0.0" and f"127.0.0.1:{options['port']}/health" in text
    assert f"EXPOSE {options['port']}" in text
    stages = re.findall(r"^FROM (\S+)( AS \w+)?$", text, re.MULTILINE)
    assert len(stages) == 2 and re.search(r"^USER (?!0)\d+$", text, re.MULTILINE)


def test_the_image_is_built_from_what_the_package_needs() -> None:
    kept = re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8"), re.MULTILINE)
    assert {"pyproject.toml", "CMakeLists.txt", "csrc", "src", "README.md", "LICENSE"} == set(kept)
    assert not [name for name in kept if not (DEPLOY.parent / name).exists()]


def test_the_unit_gives_draining_its_time() -> None:
    text = (DEPLOY / "twostroke.service").read_text("utf-8")
    fields = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    program, *words = shlex.split(fields["ExecStart"])
    assert program == "/opt/twostroke/bin/twostroke"
    options = options_of(words)
    assert isinstance(options["drain"], float) and float(fields["TimeoutStopSec"]) > options["drain"]
    assert ServerConfig(log_format=str(options["log_format"])).host == "127.0.0.1"
    assert fields["LoadCredential"].split(":")[0] == Path(str(options["api_key_file"])).name


def test_an_unknown_option_would_be_seen() -> None:
    try:
        options_of(["serve", "smollm2", "--no-such-option"])
    except click.UsageError:
        return
    raise AssertionError("an unknown option was accepted")
