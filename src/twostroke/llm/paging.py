"""PagingWatch: whether decode waits for the disk. Owns the rule; counting page reads is the system's.

Decode reads every weight for each token. Where they do not all stay in memory, pages are read again in every step, and
the disk sets the pace.
"""

import resource
from collections.abc import Callable
from dataclasses import dataclass

_LEAST_STEPS = 3  # a few reads at the start are libraries and templates
_LEAST_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Paging:
    """Decode steps seen, those within which the process read pages from disk, and how many pages."""

    steps: int
    paged_steps: int
    page_reads: int

    @property
    def is_paging(self) -> bool:
        """Page reads go on as decode does, rather than coming once."""
        return self.paged_steps >= max(_LEAST_STEPS, _LEAST_SHARE * self.steps)


class PagingWatch:
    """Told of each new token. `count` gives the page reads of the process so far (major faults)."""

    def __init__(self, count: Callable[[], int] | None = None) -> None:
        self._count = count or _major_faults
        self._last: int | None = None
        self._steps = self._paged_steps = self._reads = 0

    def token(self) -> None:
        """A token has come; the first one ends the prefill, which is not watched."""
        now = self._count()
        if self._last is not None:
            self._steps += 1
            self._paged_steps += now > self._last
            self._reads += now - self._last
        self._last = now

    @property
    def found(self) -> Paging:
        return Paging(self._steps, self._paged_steps, self._reads)


def _major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
