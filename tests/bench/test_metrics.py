"""Distributions, rates, goodput and doubts of records written by hand."""

import pytest
from tests.bench.streams import DONE, delta, finish, record_of, steady, usage

from twostroke.bench.gate import StageRun
from twostroke.bench.lag import Lag
from twostroke.bench.load import Stage
from twostroke.bench.metrics import Figures, Spread, figures_of
from twostroke.bench.record import Record
from twostroke.bench.slo import Slo
from twostroke.errors import ConfigError


def figures(
    records: list[Record],
    slo: str | None = None,
    expected_cached: float = 0.0,
    lag: Lag | None = None,
    concurrency: int = 1,
) -> Figures:
    run = StageRun(Stage(0, concurrency, None, "poisson", 0, None, 1, 0), records, lag)
    return figures_of(run, None if slo is None else Slo.parse(slo), expected_cached)


def failed(kind: str) -> Record:
    return Record(0, 0, 0, sent=100.0, ended=101.0, error=kind, error_detail="why")


def test_a_spread_is_of_what_there_is() -> None:
    spread = Spread.of([None, *range(1, 102)])
    assert spread is not None
    assert (spread.count, spread.mean, spread.min, spread.max) == (101, 51, 1, 101)
    assert (spread.p50, spread.p90, spread.p95, spread.p99) == (51, 91, 96, 100)
    assert Spread.of([None]) is None


def test_rates_are_over_the_window_and_never_mix_output_with_prompts() -> None:
    """Two requests of 50 prompt and 11 output tokens, the second sent 1 s later: the window is 1 + 0.305 s."""
    found = figures([steady(11), steady(11, sent=101.0)])
    assert found.window == pytest.approx(1.305)
    assert found.requests_per_second == pytest.approx(2 / 1.305)
    assert found.output_tokens_per_second == pytest.approx(22 / 1.305)
    assert found.total_tokens_per_second == pytest.approx(122 / 1.305)


def test_warm_up_and_errors_are_in_no_figure() -> None:
    cancelled = Record(0, 0, 0, sent=100.0, ended=100.5, cancelled=True)
    records = [steady(11, is_warmup=True, first=9.0), steady(11), failed("HTTP 429"), failed("HTTP 429"), cancelled]
    found = figures(records)
    assert (found.num_requests, found.num_ok, found.num_cancelled) == (4, 1, 1)
    assert (found.errors, found.error_details) == ({"HTTP 429": 2}, {"HTTP 429": "why"})
    assert found.ttft is not None and (found.ttft.count, found.ttft.max) == (1, pytest.approx(0.2))
    assert found.itl is not None and found.itl.count == 10


def test_goodput_is_of_all_that_ended() -> None:
    """Of four, one is late, one slow a token, one failed; an answer of one token has no TPOT to miss."""
    records = [steady(11, first=0.6), steady(11, gap=0.2), failed("timeout"), steady(1)]
    found = figures(records, "ttft=0.5,tpot=0.05")
    assert found.good_share == pytest.approx(0.25)
    assert found.good_per_second == pytest.approx(1 / found.window)


@pytest.mark.parametrize("text", ["", "ttft", "ttft=x", "ttft=0", "ttft=-1", "speed=1", "ttft=1,ttft=2", "ttft=nan"])
def test_bounds_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"ttft=0\.5,tpot=0\.05"):
        Slo.parse(text)


def test_nothing_succeeded() -> None:
    found = figures([failed("timeout")], "ttft=1")
    assert (found.num_ok, found.window, found.output_tokens_per_second, found.good_per_second) == (0, 0.0, 0.0, 0.0)
    assert found.ttft is None


def test_what_makes_figures_doubtful() -> None:
    no_usage = record_of([(0.1, delta()), (0.2, delta()), (0.2, finish()), (0.2, DONE)])
    too_few = record_of([(0.1, delta()), (0.2, delta()), (0.2, finish()), (0.2, usage(5, 1)), (0.2, DONE)])
    at_once = record_of([(0.2, delta()), (0.2, finish()), (0.2, usage(5, 30)), (0.2, DONE)])
    hidden = usage(5, 9, completion_tokens_details={"reasoning_tokens": 8})
    hides = record_of([(0.2, delta()), (0.2, finish()), (0.2, hidden), (0.2, DONE)])
    short = steady(5, asked_output=10)
    cached = usage(100, 1, prompt_tokens_details={"cached_tokens": 60})
    from_cache = record_of([(0.2, delta()), (0.2, finish()), (0.2, cached), (0.2, DONE)])
    cases = {
        "were sent before": [steady(3, is_repeated=True), steady(3)],
        "60% of the prompt tokens came from the server's cache": [from_cache],
        "state no usage": [no_usage],
        "fewer tokens than they have deltas": [too_few],
        "all at once": [at_once],
        "hide their reasoning": [hides],
        "ended early, at 50%": [short],
    }
    for text, records in cases.items():
        doubts = figures(records).doubts
        assert len(doubts) == 1 and text in doubts[0], text
    assert figures([steady(3)]).doubts == ()
    assert figures([from_cache], expected_cached=0.58).doubts == ()


@pytest.mark.parametrize(
    ("lag", "text"),
    [
        (Lag(0.011, 0.012, 0.02, 0.1), "late at p50"),
        (Lag(0.001, 0.021, 0.03, 0.1), "late at p99"),
        (Lag(0.001, 0.002, 0.03, 0.95), "95% of a core"),
        (Lag(0.001, 0.002, 0.03, 0.1, send_p99=0.2), "after they were due"),
    ],
)
def test_a_generator_that_was_the_bottleneck(lag: Lag, text: str) -> None:
    """TTFT is 200 ms: the limits are 10 ms at p50 and 20 ms at p99."""
    (fault,) = figures([steady(3)], lag=lag).faults
    assert text in fault


def test_a_generator_that_was_not() -> None:
    assert figures([steady(3)], lag=Lag(0.0095, 0.0195, 0.5, 0.89, send_p99=0.02)).faults == ()


def test_gaps_are_blurred_by_a_lag_of_their_size() -> None:
    """Gaps are 10 ms."""
    sharp, blurred = (figures([steady(3)], lag=Lag(0.001, p99, 0.02, 0.1)) for p99 in (0.0049, 0.0051))
    assert sharp.doubts == ()
    assert [doubt.split(" by ")[0] for doubt in blurred.doubts] == ["single inter-token gaps are blurred"]


def test_prompts_of_another_length_than_asked_for() -> None:
    """Of 50 tokens each. A later turn's prompt rightly has more."""
    for asked, turn, is_told in ((20, 0, True), (20, 1, False), (49, 0, False)):
        record = steady(3)
        record.asked_prompt, record.turn = asked, turn
        told = ("prompts have 50 tokens on average, not the 20 asked for",) if is_told else ()
        assert figures([record]).doubts == told


def test_a_load_that_was_never_so_high() -> None:
    assert figures([steady(3)] * 3, concurrency=4).doubts == ("with 3 requests there were never 4 at a time",)
    assert figures([steady(3)] * 4, concurrency=4).doubts == ()
