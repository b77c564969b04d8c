"""Lengths, arrivals, stages and what a configuration refuses."""

from itertools import islice, pairwise

import numpy as np
import pytest

from twostroke.bench.config import LoadTestConfig
from twostroke.bench.lengths import Lengths
from twostroke.bench.load import Stage, stages_of
from twostroke.errors import ConfigError

URL = "http://127.0.0.1:1"


def stage(rate: float, arrivals: str, ramp: float = 0.0, index: int = 0) -> Stage:
    return Stage(index, None, rate, arrivals, ramp, None, 10.0, 0)


@pytest.mark.parametrize(
    ("text", "low", "high", "mean", "deviation"),
    [
        ("512", 512, 512, 512, 0),
        ("100-300", 100, 300, 200, 58.0),
        ("512~64", 1, 1023, 512, 64),
        ("1_000", 1000, 1000, 1000, 0),
    ],
)
def test_lengths(text: str, low: int, high: int, mean: float, deviation: float) -> None:
    rng = np.random.default_rng(1)
    drawn = np.array([Lengths.parse(text, "x").draw(rng) for _ in range(4000)])
    assert low <= drawn.min() and drawn.max() <= high
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert drawn.std() == pytest.approx(deviation, rel=0.05)


def test_a_wide_normal_stays_above_nothing() -> None:
    rng = np.random.default_rng(1)
    drawn = [Lengths.parse("4~100", "x").draw(rng) for _ in range(200)]
    assert (min(drawn), max(drawn)) == (1, 7)


@pytest.mark.parametrize("text", ["", "0", "-5", "5-2", "0-3", "many", "3~", "1-2-3", "99999999", "1.5"])
def test_lengths_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="prompt_tokens"):
        Lengths.parse(text, "prompt_tokens")


def test_constant_arrivals() -> None:
    assert list(islice(stage(4, "constant").due_times(1), 4)) == pytest.approx([0.25, 0.5, 0.75, 1.0])


def test_poisson_arrivals_have_the_rate_and_its_spread() -> None:
    """Gaps are exponential: their deviation is their mean."""
    times = list(islice(stage(50, "poisson").due_times(7), 20_000))
    gaps = [after - before for before, after in pairwise(times)]
    assert np.mean(gaps) == pytest.approx(1 / 50, rel=0.03)
    assert np.std(gaps) == pytest.approx(1 / 50, rel=0.03)


def test_arrivals_are_repeatable_and_differ_between_stages() -> None:
    one, same = (list(islice(stage(5, "poisson").due_times(3), 9)) for _ in range(2))
    assert one == same
    assert one != list(islice(stage(5, "poisson", index=1).due_times(3), 9))


def test_a_ramp_rises_linearly() -> None:
    """At 10/s after a ramp of 4 s: 20 arrivals in the ramp, 5 of them in its first half; then one every 0.1 s."""
    times = list(islice(stage(10, "constant", ramp=4).due_times(1), 40))
    assert sum(time <= 2 for time in times) == 5
    assert sum(time <= 4 for time in times) == 20
    assert times[30] - times[29] == pytest.approx(0.1)


def test_stages() -> None:
    closed = stages_of(LoadTestConfig(URL, concurrency="1,4,16"))
    assert [(one.concurrency, one.rate, one.seconds) for one in closed] == [
        (1, None, 30),
        (4, None, 30),
        (16, None, 30),
    ]
    opened = stages_of(LoadTestConfig(URL, rate="0.5,2", requests=7))
    assert [(one.rate, one.requests, one.seconds) for one in opened] == [(0.5, 7, None), (2, 7, None)]
    assert [one.name for one in opened] == ["0.5/s poisson", "2/s poisson"]
    assert [one.concurrency for one in stages_of(LoadTestConfig(URL))] == [1]


@pytest.mark.parametrize(
    "fields",
    [{"concurrency": "1.5"}, {"concurrency": "x"}, {"rate": "0"}, {"rate": "1,,2"}, {"rate": "inf"}, {"rate": "1e300"}],
)
def test_loads_that_are_none(fields: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        stages_of(LoadTestConfig(URL, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"concurrency": "1", "rate": "1"}, "exclude each other"),
        ({"dataset": "x", "shape": "1k/1k"}, "own prompts"),
        ({"shape": "2k/2k"}, "one of 100/300"),
        ({"shape": "1k/1k", "prompt_tokens": "5", "output_tokens": "5"}, "shape says nothing"),
        ({"shared_prefix": 1.5}, "from 0 to 1"),
        ({"turns": 0}, "turns"),
        ({"requests": 0}, "requests"),
        ({"timeout": 0.0}, "timeout"),
        ({"seed": -1}, "seed must be from 0"),
        ({"seed": 2**64}, "seed must be from 0"),
        ({"endpoint": "responses"}, "chat, completions"),
    ],
)
def test_what_a_configuration_refuses(fields: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        LoadTestConfig(URL, **fields)  # type: ignore[arg-type]


def test_the_key_is_not_printed() -> None:
    assert "secret" not in repr(LoadTestConfig(URL, api_key="secret"))
