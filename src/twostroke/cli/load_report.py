"""A load test as lines of text: a block a stage, the sweep at a glance, what the words mean. Owns their form."""

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from twostroke.bench.load_test import LoadTest
from twostroke.bench.metrics import Figures, Spread
from twostroke.bench.record import DEFINITIONS
from twostroke.bench.units import rate_text, time_text
from twostroke.cli.figures import printable, table

if TYPE_CHECKING:
    from twostroke.bench.expectation import Expectation

_WIDTH = 110
_COLUMNS = ("mean", "p50", "p90", "p95", "p99", "min", "max")
_TIMES = (
    ("TTFT", "ttft"),
    ("first content", "first_content"),
    ("TPOT", "tpot"),
    ("inter-token", "itl"),
    ("end to end", "e2e"),
)


def stage_lines(figures: Figures) -> Iterator[str]:
    """One stage: rates, distributions, errors, and what makes it doubtful."""
    rates = f"{rate_text(figures.requests_per_second)} requests/s"
    if figures.prompt_tokens or figures.output_tokens:
        rates += f"   {rate_text(figures.output_tokens_per_second)} output tokens/s"
        rates += f"   {rate_text(figures.total_tokens_per_second)} with prompts"
    yield f"{figures.run.stage.name}: {figures.num_ok} of {figures.num_requests} requests in {figures.window:.1f} s"
    yield f"  {rates}"
    rows: list[tuple[str, ...]] = [("", *_COLUMNS)]
    for label, name in _TIMES:
        spread: Spread | None = getattr(figures, name)
        if spread is not None and (name != "first_content" or spread != figures.ttft):
            rows.append((label, *(time_text(getattr(spread, column)) for column in _COLUMNS)))
    for label, spread in (("prompt tokens", figures.prompt_size), ("output tokens", figures.output_size)):
        if spread is not None:
            rows.append((label, *(f"{getattr(spread, column):,.0f}" for column in _COLUMNS)))
    if len(rows) > 1:
        yield from (f"  {line}" for line in table(rows))
    yield from (line for label, text in _remarks(figures) for line in _wrapped(label, text))


def _remarks(figures: Figures) -> Iterator[tuple[str, str]]:
    if figures.good_share is not None and figures.good_per_second is not None:
        yield "goodput", f"{rate_text(figures.good_per_second)} requests/s, {figures.good_share:.0%} of those measured"
    if figures.cached_tokens:
        yield "cached", f"{figures.cached_tokens:,} of {figures.prompt_tokens:,} prompt tokens, as the server states"
    if figures.tokens_per_delta is not None and not 0.98 < figures.tokens_per_delta < 1.02:
        yield "deltas", f"{figures.tokens_per_delta:.2f} tokens each: inter-token gaps are of deltas"
    for kind, count in figures.errors.items():
        detail = figures.error_details.get(kind)
        yield "errors", f"{count} x {kind}" + (f": {printable(detail)}" if detail else "")
    if figures.num_cancelled:
        count = figures.num_cancelled
        were = "1 request was" if count == 1 else f"{count:,} requests were"
        yield "stopped", f"{were} under way and not counted"
    elif figures.run.was_stopped and not figures.num_requests:
        yield "stopped", "before the warm-up was over: nothing was measured"
        return
    if (lag := figures.run.lag) is not None:
        send = "" if lag.send_p99 is None else f"; requests left {time_text(lag.send_p99)} late at p99"
        late = f"read {time_text(lag.p50)} late at p50, {time_text(lag.p99)} at p99{send}"
        yield "generator", f"{late}; {lag.cpu_share:.0%} of a core"
    yield from (("note", doubt) for doubt in figures.doubts)
    yield from (("INVALID", fault) for fault in figures.faults)


def expected_lines(expected: "Expectation | None") -> Iterator[str]:
    """What the planner says of the same load."""
    if expected is None:
        return
    low, high = time_text(expected.tpot_low), time_text(expected.tpot_high)
    text = f"TPOT {time_text(expected.tpot)} ({low} to {high}) with {expected.batch} under way"
    if expected.ttft is not None and expected.ttft_low is not None and expected.ttft_high is not None:
        low, high = time_text(expected.ttft_low), time_text(expected.ttft_high)
        text += f"; TTFT alone {time_text(expected.ttft)} ({low} to {high})"
    yield from _wrapped("predicted", f"{text}: {expected.subject}")


def head_lines(test: LoadTest) -> Iterator[str]:
    """What was asked of whom."""
    load = test.workload
    turns = f", {load['turns']} turns" if load.get("turns", 1) > 1 else ""
    shared = f", {load['shared_prefix']:.0%} of each shared" if load.get("shared_prefix") else ", all different"
    if load["kind"] == "dataset":
        what = f"{load['conversations']:,} conversations from {test.config.dataset}"
    else:
        what = f"prompts of {load['prompt_tokens']} tokens{shared}, answers of {load['output_tokens']}{turns}"
    yield f"{test.config.url}   {test.endpoint.kind}   model {printable(str(test.endpoint.model))}   seed {test.seed}"
    counted = f"{what}; prompts counted by {test.scale.counter}"
    overhead = f", {test.scale.overhead:.0f} tokens of it the template's" if test.scale.overhead >= 1 else ""
    yield from textwrap.wrap(counted + overhead, _WIDTH)
    yield from (line for note in test.notes for line in _wrapped("note", note, indent=""))


def sweep_lines(test: LoadTest) -> Iterator[str]:
    """All stages at a glance; nothing for a single one."""
    if len(test.stages) < 2:
        return
    rows: list[tuple[str, ...]] = [
        ("load", "requests/s", "output tok/s", "total tok/s", "TTFT p50", "p99", "TPOT p50", "p99", "errors", "")
    ]
    for stage in test.stages:
        times = [(spread.p50, spread.p99) if spread else (None, None) for spread in (stage.ttft, stage.tpot)]
        rates = (stage.output_tokens_per_second, stage.total_tokens_per_second)
        rows.append(
            (
                stage.run.stage.name,
                rate_text(stage.requests_per_second),
                *map(rate_text, rates),
                *("-" if value is None else time_text(value) for pair in times for value in pair),
                str(sum(stage.errors.values())),
                "invalid" if stage.faults else "",
            )
        )
    yield from table(rows)


def definition_lines() -> Iterator[str]:
    """What each figure means."""
    labels = {
        "ttft": "TTFT",
        "first_content": "first content",
        "tpot": "TPOT",
        "itl": "inter-token",
        "e2e": "end to end",
    }
    for name, text in DEFINITIONS.items():
        yield from _wrapped(labels.get(name, name.replace("_", " ")), text, indent="", width=14)


def _wrapped(label: str, text: str, indent: str = "  ", width: int = 13) -> list[str]:
    first = f"{indent}{label.ljust(width)}  "
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=" " * len(first))
