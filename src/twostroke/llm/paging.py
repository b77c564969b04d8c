"""PagingWatch: whether decode waits for the disk. Owns the rule; counting page reads is the system's.

Decode reads every weight for each token. Where they do not all stay in memory, pages are read again in every step, and
the disk sets the pace.
"""

import resource
from collections.abc import Callable
from typing import NamedTuple

_CLOSELY = 16  # steps each looked at by itself; later ones so many at a time, since to look takes time too
_LEAST_STEPS = 3  # a few reads at the start are libraries and templates
_LEAST_SHARE = 0.25


class Paging(NamedTuple):
    """Decode steps seen, those within which the process read pages from disk (at most), and how many pages."""

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
        self._unseen = 0  # steps since the latest look

    def token(self) -> None:
        """A token has come; the first one ends the prefill, which is not watched."""
        self._unseen += 1
        if self._steps >= _CLOSELY and self._unseen < _CLOSELY:
            return
        now = self._count()
        if self._last is not None:
            reads = now - self._last
            self._steps += self._unseen
            self._paged_steps += min(self._unseen, reads)
            self._reads += reads
        self._last, self._unseen = now, 0

    @property
    def found(self) -> Paging:
        return Paging(self._steps, self._paged_steps, self._reads)


def _major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
