"""Command-line options from the fields of a configuration. Owns the way a field becomes an option."""

from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from typing import Any, get_args, get_origin

import click

from twostroke.cli.texts import as_text

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def options_of(cls: Any, names: Sequence[str]) -> Decorator:
    """An option for each named field of a dataclass: name, type, default, choices and help are the field's."""
    known = {field.name: field for field in fields(cls)}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names):
            command = _option(known[name])(command)
        return command

    return decorate


def _option(field: Field[Any]) -> Decorator:
    is_known = field.default is not None
    flag = "--" + field.name.replace("_", "-")
    settings: dict[str, Any] = {"help": field.metadata["help"], "default": field.default}
    if field.type is bool:
        return click.option(f"{flag}/--no{flag[1:]}" if field.default else flag, is_flag=True, **settings)
    if get_origin(field.type) is tuple:
        return click.option(flag, multiple=True, metavar="TEXT", callback=as_text, **settings)
    if choices := field.metadata["choices"]:
        return click.option(flag, type=click.Choice(choices), show_default=is_known, **settings)
    types = [kind for kind in get_args(field.type) if kind is not type(None)] or [field.type]
    return click.option(flag, type=types[0], show_default=is_known, **settings)
