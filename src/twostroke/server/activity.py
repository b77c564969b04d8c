"""Activity: what the engine does now, for the live page. Owns what is shown of it and how often it is looked at.

It reads the ledger's latest steps, the pool's counts and the numbers of requests that run; it never waits for a step
nor holds one up. However many pages are open, the engine is looked at once in `_EVERY_S`.
"""

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from twostroke.engine.engine import Engine
from twostroke.engine.ledger import StepRecord
from twostroke.engine.request import Request
from twostroke.kvcache.cache import BlockCounts
from twostroke.program.phase import Phase
from twostroke.server.job import Job
from twostroke.server.recent import RecentPhase
from twostroke.server.roof_watch import RoofWatch

MAX_CELLS = 512  # squares in which the pool is drawn
MAX_REQUESTS = 64
_MAX_ANSWERS = 16
_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at the engine: when, the steps it had, and all else as it is sent."""

    at: float
    steps: list[StepRecord]
    fields: dict[str, Any]


class Activity:
    """Belongs to the event loop's thread. Times are seconds of the engine's clock, whose zero means nothing."""

    def __init__(self, engine: Engine, roofs: RoofWatch) -> None:
        self._engine = engine
        self._roofs = roofs
        self._answers: deque[dict[str, Any]] = deque(maxlen=_MAX_ANSWERS)
        self._latest: _Look | None = None

    def job_ended(self, job: Job) -> None:
        """Remembers the answers of a job: those of which there is a token."""
        for choice in job.choices:
            summary = choice.summary
            if summary is None or not choice.completion_tokens:
                continue
            facts = {
                "ended": round(time.perf_counter(), 6),
                "finish_reason": choice.reason,
                "prompt_tokens": summary.prompt_tokens,
                "cached_tokens": summary.cached_tokens,
                "completion_tokens": choice.completion_tokens,
            }
            times = {"queue_s": summary.queue_s, "ttft_s": summary.ttft_s, "tpot_s": summary.tpot_s}
            self._answers.append(facts | times)

    def snapshot(self, since: float) -> dict[str, Any]:
        """All of it; of the steps those that ended after `since`, oldest first: [start, seconds, prefill rows, decode
        rows]. The ledger keeps a bounded number of them."""
        now = time.perf_counter()
        if self._latest is None or now - self._latest.at >= _EVERY_S:
            self._latest = self._look(now)
        steps = [_step(step) for step in self._latest.steps if step.started + step.seconds > since]
        return {**self._latest.fields, "steps": steps, "answers": list(self._answers)}

    def _look(self, now: float) -> _Look:
        engine = self._engine
        steps = list(engine.ledger.recent)
        fields = {
            "now": round(now, 6),
            "max_step_tokens": engine.config.max_step_tokens,
            "running": engine.num_running,
            "waiting": engine.num_waiting,
            "requests": [_request(request) for request in engine.running[:MAX_REQUESTS]],
            "kv": _pool(*engine.cache.usage(), engine.cache.block_tokens),
            "phases": {phase.value: self._phase(steps, phase) for phase in Phase},
        }
        return _Look(now, steps, fields)

    def _phase(self, steps: list[StepRecord], phase: Phase) -> dict[str, Any] | None:
        recent = RecentPhase.of(steps, phase, self._roofs.hardware)
        if recent is None:
            return None
        totals, reached = recent.totals, recent.reached
        return {
            "ended": round(recent.ended, 6),
            "steps": totals.steps,
            "tok_s": totals.tok_s,
            "step_s": totals.seconds / totals.steps,
            "achieved_flop_s": totals.flop_s,
            "achieved_byte_s": totals.byte_s,
            "roof_flop_s": None if reached is None else reached.roof_flop_s,
            "roof_byte_s": None if reached is None else reached.roof_byte_s,
            "bound": None if reached is None else reached.bound,
            "roof_fraction": None if reached is None else reached.roof_fraction,
        }


def _step(step: StepRecord) -> list[float]:
    rows = [step.phases[phase].rows if phase in step.phases else 0 for phase in (Phase.PREFILL, Phase.DECODE)]
    return [round(step.started, 6), round(step.seconds, 6), *rows]


def _request(request: Request) -> dict[str, Any]:
    """How far it is: numbers only, never its text."""
    return {
        "state": request.state.value,
        "prompt_tokens": request.num_prompt,
        "computed_tokens": min(request.num_computed, request.num_prompt),
        "cached_tokens": request.num_cached,
        "completion_tokens": request.num_generated,
    }


def _pool(users: BlockCounts, kept: BlockCounts, block_tokens: int) -> dict[str, Any]:
    """Blocks that one request uses, that several share, that are only kept for later prompts, and in neighbouring
    groups of equally many how many of each: `cells`, no more than MAX_CELLS of them."""
    kinds = {"used": users == 1, "shared": users > 1, "kept": (users == 0) & (kept > 0)}
    a_cell = max(1, -(-len(users) // MAX_CELLS))
    starts = np.arange(0, len(users), a_cell)
    cells = {
        name: np.add.reduceat(blocks.astype(np.int32), starts).tolist() if len(users) else []
        for name, blocks in kinds.items()
    }
    counts = {name: int(blocks.sum()) for name, blocks in kinds.items()}
    return {
        "block_tokens": block_tokens,
        "num_blocks": len(users),
        **counts,
        "free": len(users) - sum(counts.values()),
        "blocks_a_cell": a_cell,
        "cells": cells,
    }
