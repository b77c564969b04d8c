"""Several requests of one caller run together to their end. Owns the order of taking events; knows no text."""

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Running(Protocol):
    """A request under way: `advance` takes its next event, waiting for it where there is none."""

    @property
    def has_event(self) -> bool: ...

    @property
    def is_over(self) -> bool: ...

    def advance(self) -> object: ...

    def close(self) -> None: ...


R = TypeVar("R", bound=Running)


def run_together(starts: Iterable[R]) -> list[R]:
    """Starts all and runs them to their end, each step's events taken before the next step; where one fails, the
    others end too."""
    started: list[R] = []
    try:
        started.extend(starts)
        pending = started
        while pending:
            pending[0].advance()
            for running in pending:
                while running.has_event:
                    running.advance()
            pending = [running for running in pending if not running.is_over]
    finally:
        for running in started:
            running.close()
    return started
