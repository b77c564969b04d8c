"""Load: how much of it, and when each request is due. Owns stages, what a sweep is, and arrival times."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from twostroke.bench.config import LoadTestConfig
from twostroke.errors import ConfigError

DEFAULT_SECONDS = 30.0
_MOST_CONCURRENT = 100_000
_MOST_A_SECOND = 100_000


@dataclass(frozen=True, slots=True)
class Stage:
    """One load, held for a while: `concurrency` conversations at a time (closed loop), or `rate` new ones a second
    (open loop). It ends after `requests` measured requests or `seconds` of sending, whichever comes first."""

    index: int
    concurrency: int | None
    rate: float | None
    arrivals: str
    ramp: float
    requests: int | None
    seconds: float | None
    warmup: int

    @property
    def name(self) -> str:
        if self.concurrency is not None:
            return f"concurrency {self.concurrency}"
        return f"{self.rate:g}/s {self.arrivals}"

    def due_times(self, seed: int) -> Iterator[float]:
        """Seconds after the start at which conversations are due, without end. Arrivals of a unit rate, stretched:
        where the load rises over a ramp, the integral of the rate is rate t^2 / (2 ramp) and then linear."""
        if self.rate is None:
            return
        rng = np.random.default_rng([seed, 2, self.index])
        expected = 0.0  # arrivals until now
        while True:
            expected += float(rng.exponential()) if self.arrivals == "poisson" else 1.0
            within_ramp = self.rate * self.ramp / 2
            if expected < within_ramp:
                yield math.sqrt(2 * self.ramp * expected / self.rate)
            else:
                yield self.ramp / 2 + expected / self.rate


def stages_of(config: LoadTestConfig) -> list[Stage]:
    """One stage for each concurrency or rate of the list. Raises ConfigError for a list that is none."""
    seconds = DEFAULT_SECONDS if config.requests is None and config.seconds is None else config.seconds
    rest = (config.arrivals, config.ramp, config.requests, seconds, config.warmup)
    if config.rate is not None:
        rates = _numbers(config.rate, "rate")
        if max(rates) > _MOST_A_SECOND:
            raise ConfigError(f"rate must be up to {_MOST_A_SECOND:,} a second, not {max(rates):g}")
        return [Stage(index, None, rate, *rest) for index, rate in enumerate(rates)]
    counts = _numbers(config.concurrency or "1", "concurrency")
    for count in counts:
        if count != int(count) or count > _MOST_CONCURRENT:
            raise ConfigError(f"concurrency must be whole numbers up to {_MOST_CONCURRENT:,}, not {count:g}")
    return [Stage(index, int(count), None, *rest) for index, count in enumerate(counts)]


def _numbers(text: str, name: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{name} must be a number or a list such as 1,4,16, not {text!r}") from None
    if not all(math.isfinite(number) and number > 0 for number in numbers):
        raise ConfigError(f"{name} must be above 0, not {text!r}")
    return numbers
