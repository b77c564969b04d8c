"""An answer on stdout as it comes. Owns stopping it with Ctrl-C, and what a terminal may be sent."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from twostroke.llm.generation import Generation
from twostroke.llm.results import Completion

# What a terminal would obey, all control characters but line feed and tab, is shown as U+FFFD.
_CONTROLS = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}


def show_answer(generation: Generation) -> Completion:
    """Prints the pieces as they come, and a line's end if the answer has none. Ctrl-C ends the answer."""
    with generation, stopped_by_interrupt(generation.cancel):
        for piece in generation:
            click.echo(_for(piece, sys.stdout.isatty()), nl=False)
    completion = generation.completion
    if not completion.text.endswith("\n"):
        click.echo()
    return completion


def collect_answer(generation: Generation) -> Completion:
    """The whole answer, printed nowhere. Ctrl-C ends it."""
    with generation, stopped_by_interrupt(generation.cancel):
        for _ in generation:
            pass
    return generation.completion


@contextmanager
def stopped_by_interrupt(cancel: Callable[[], None]) -> Iterator[None]:
    """Within, Ctrl-C calls `cancel` rather than raising KeyboardInterrupt."""

    def on_interrupt(number: int, frame: Any) -> None:
        cancel()

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _for(text: str, is_terminal: bool) -> str:
    return text.translate(_CONTROLS) if is_terminal else text
