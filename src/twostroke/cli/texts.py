"""Texts that a user gives: arguments, options, lines typed, standard input. Owns that they are UTF-8."""

import os
from typing import Any

import click

from twostroke.errors import InvalidRequestError


def as_text(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """A callback for arguments and options that are texts, or tuples of them: in UTF-8 whatever the locale says. Raises
    InvalidRequestError, naming the argument or option and the byte, for what is not."""
    name = param.opts[0] if param.opts[0].startswith("-") else param.opts[0].upper()
    if isinstance(value, str):
        return utf8_text(value, name)
    return tuple(utf8_text(text, name) for text in value) if isinstance(value, tuple) else value


def utf8_text(given: str, what: str) -> str:
    """A text as it was meant: bytes that the locale cannot read reach Python as lone surrogates. Raises
    InvalidRequestError, naming `what` and the byte, where they are not UTF-8."""
    try:
        given.encode("utf-8")
    except UnicodeEncodeError:
        return decoded(_bytes_of(given), what)
    return given


def decoded(data: bytes, what: str) -> str:
    """A text in UTF-8. Raises InvalidRequestError, naming `what` and the byte."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{what} is not UTF-8: byte {error.start:,} is {data[error.start]:#04x}") from None


def _bytes_of(given: str) -> bytes:
    try:
        return os.fsencode(given)
    except UnicodeEncodeError:  # surrogates that stand for no byte
        return given.encode("utf-8", "surrogatepass")
