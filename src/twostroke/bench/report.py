"""A load test as data: one JSON object, and a CSV row a request. Owns their keys; times in seconds, sizes in tokens.

Times of requests count from the start of the first stage.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from twostroke.bench.lag import Lag
from twostroke.bench.load_test import LoadTest
from twostroke.bench.metrics import Figures, Spread
from twostroke.bench.record import DEFINITIONS, Record

_DISTRIBUTIONS = ("ttft", "first_content", "tpot", "itl", "e2e")
_COLUMNS = (
    "stage",
    "load",
    "conversation",
    "turn",
    "warmup",
    "due_s",
    "sent_s",
    "ended_s",
    "ttft_s",
    "first_content_s",
    "tpot_s",
    "e2e_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "stream_tokens",
    "deltas",
    "status",
    "finish_reason",
    "error",
    "error_detail",
    "repeated_prompt",
    "cancelled",
)


def report_of(test: LoadTest) -> dict[str, Any]:
    """The whole test as one JSON object. The API key is no part of it."""
    config = test.config
    return {
        "url": config.url,
        "path": test.endpoint.path,
        "endpoint": config.endpoint,
        "model": test.endpoint.model,
        "started_at": datetime.fromtimestamp(test.started, UTC).isoformat(timespec="seconds"),
        "seed": test.seed,
        "workload": test.workload,
        "prompt_counter": test.scale.counter,
        "template_tokens": test.scale.overhead,
        "ignore_eos": test.endpoint.dialect.ignore_eos,
        "extra": dict(test.endpoint.extra),
        "slo": config.slo,
        "timeout_s": config.timeout,
        "interrupted": test.was_stopped,
        "valid": test.is_valid,
        "notes": list(test.notes),
        "definitions": DEFINITIONS,
        "stages": [
            {**_stage(stage), "predicted": None if expected is None else asdict(expected)}
            for stage, expected in zip(test.stages, test.expected, strict=True)
        ],
    }


def _stage(figures: Figures) -> dict[str, Any]:
    stage, lag = figures.run.stage, figures.run.lag
    return {
        "load": {
            "name": stage.name,
            "concurrency": stage.concurrency,
            "rate": stage.rate,
            "arrivals": stage.arrivals if stage.rate is not None else None,
            "ramp_s": stage.ramp,
            "warmup_requests": stage.warmup,
        },
        "requests": {
            "measured": figures.num_requests,
            "succeeded": figures.num_ok,
            "cancelled": figures.num_cancelled,
            "errors": figures.errors,
        },
        "window_s": figures.window,
        "requests_per_second": figures.requests_per_second,
        "output_tokens_per_second": figures.output_tokens_per_second,
        "total_tokens_per_second": figures.total_tokens_per_second,
        "goodput_requests_per_second": figures.good_per_second,
        "goodput_share": figures.good_share,
        **{f"{name}_s": _spread(getattr(figures, name)) for name in _DISTRIBUTIONS},
        "prompt_tokens": {"sum": figures.prompt_tokens, "a_request": _spread(figures.prompt_size)},
        "output_tokens": {"sum": figures.output_tokens, "a_request": _spread(figures.output_size)},
        "cached_tokens": figures.cached_tokens,
        "tokens_per_delta": figures.tokens_per_delta,
        "generator": None if lag is None else _generator(lag),
        "valid": not figures.faults,
        "faults": list(figures.faults),
        "doubts": list(figures.doubts),
    }


def _generator(lag: Lag) -> dict[str, Any]:
    return {
        "read_lag_s": {"p50": lag.p50, "p99": lag.p99, "max": lag.max},
        "send_lag_p99_s": lag.send_p99,
        "cpu_share": lag.cpu_share,
    }


def _spread(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else asdict(spread)


def csv_text(test: LoadTest) -> str:
    """A header, then a row for every request, those of the warm-up too."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for figures in test.stages:
        for record in figures.run.records:
            writer.writerow(_row(test, figures.run.stage.name, record))
    return out.getvalue()


def _row(test: LoadTest, load: str, record: Record) -> Iterator[object]:
    yield from (record.stage, load, record.conversation, record.turn, int(record.is_warmup))
    for at in (record.due, record.sent, record.ended):
        yield None if at is None else f"{at - test.origin:.6f}"
    whole = record.succeeded
    for value in (record.ttft, record.first_content, record.tpot, record.e2e if whole else None):
        yield None if value is None else f"{value:.6f}"
    yield from (record.usage.prompt, record.usage.cached)
    yield from (record.output_tokens, record.stream_tokens, len(record.delta_times))
    yield from (record.status, record.finish_reason, record.error, record.error_detail)
    yield from (int(record.is_repeated), int(record.cancelled))
