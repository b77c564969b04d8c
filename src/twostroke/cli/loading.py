"""A model loaded for a command. Owns what is said on stderr meanwhile: how a fetch goes on, and what was decided."""

from pathlib import Path
from typing import Any

import click

from twostroke.cli.fetch_progress import fetch_progress
from twostroke.cli.figures import printable
from twostroke.llm.llm import LLM


def load(model: str, **options: Any) -> LLM:
    """The model, with fields of LLMConfig as keywords. Raises what `LLM` raises."""
    if options.get("weights"):
        click.echo(f"quantising matrices to {options['weights']} as they load", err=True)
    with fetch_progress() as progress:
        llm = LLM(model, progress=progress, **options)
    for warning in llm.warnings:
        click.echo(f"warning: {printable(warning)}", err=True)
    return llm


def served_name(model: str) -> str:
    """What the model is called in an API where no name is given: never a path."""
    return Path(model).name if Path(model).exists() else model
