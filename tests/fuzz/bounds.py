"""The bounds every mutant must keep: our errors only, no hang, no memory beyond the file's and 64 MiB."""

import signal
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from twostroke.errors import TwostrokeError

SPARE_BYTES = 64 << 20
SECONDS = 10.0


def count_accepted(cases: Iterable[int], attempt: Callable[[int], int]) -> int:
    """How many of the seeds `attempt` accepts. It returns the bytes of its files, and raises TwostrokeError to refuse;
    any other exception, a hang or greed fails with the seed."""
    accepted = 0
    tracemalloc.start()
    try:
        for seed in cases:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with _no_hang(seed):
                try:
                    num_bytes = attempt(seed)
                    accepted += 1
                except TwostrokeError as error:
                    assert "\n" not in str(error), f"seed {seed}: {error!r}"
                    num_bytes = 0
                except Exception as error:
                    raise AssertionError(f"seed {seed}: {error!r}") from error
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak < num_bytes + SPARE_BYTES, f"seed {seed}: {peak:,} bytes at once"
    finally:
        tracemalloc.stop()
    return accepted


@contextmanager
def _no_hang(seed: int) -> Iterator[None]:
    def stop(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"seed {seed} takes over {SECONDS} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
