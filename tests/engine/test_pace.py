"""Chunks sized in time, on a machine whose clock is simulated: how long steps of running answers get, and how short."""

from itertools import pairwise
from statistics import median

import numpy as np
import pytest

from twostroke.engine import engine as engine_module
from twostroke.errors import ConfigError
from twostroke.program.phase import Phase


class Machine:
    """A clock that a fake executor's steps move: bytes of decode rows at one rate, FLOPs of the others at another."""

    def __init__(self, byte_s: float = 1e6, flop_s: float = 4e6) -> None:
        self.now, self.byte_s, self.flop_s = 0.0, byte_s, flop_s
        self.mixed: list[tuple[float, float]] = []  # of each mixed step: seconds, and those of its decode rows alone

    def drive(self, bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine_module, "perf_counter", lambda: self.now)
        run = bench.engine._executor.collect

        def collect(batch):
            plan = self.plan
            cost = bench.executor.cost
            decode = cost.step(plan.decode)
            alone = decode.bytes / self.byte_s
            seconds = alone + (cost.step(plan.chunks).flops - decode.flops) / self.flop_s
            if 0 < plan.num_decode < len(plan.chunks):
                self.mixed.append((seconds, alone))
            self.now += seconds
            return run(batch)

        schedule = bench.engine._scheduler.schedule

        def kept():
            self.plan = schedule()
            return self.plan

        monkeypatch.setattr(bench.engine._executor, "collect", collect)
        monkeypatch.setattr(bench.engine._scheduler, "schedule", kept)


def run_with(bench, streams, prompt) -> None:
    """Streams for 200 steps, then a prompt beside them until its first token."""
    for request in streams:
        bench.engine.submit(request)
    for _ in range(200):
        bench.step()
    bench.engine.submit(prompt)
    while not prompt.num_generated:
        bench.step()


@pytest.mark.parametrize("num_streams", [1, 16])
@pytest.mark.parametrize("flop_s", [1e8, 3e8])
def test_running_answers_slow_down_no_more_than_told(
    make_bench, make_request, monkeypatch: pytest.MonkeyPatch, num_streams: int, flop_s: float
) -> None:
    """At most 2.5 times, by the 99th percentile, while a prompt of 4,000 tokens is computed; and not for nothing."""
    bench, machine = make_bench((2000, 2000), context=8192), Machine(flop_s=flop_s)
    machine.drive(bench, monkeypatch)
    run_with(bench, [make_request(20 + i, 3000) for i in range(num_streams)], make_request(4000, 1))
    assert len(machine.mixed) > 5
    slowdowns = [seconds / alone for seconds, alone in machine.mixed]
    assert np.percentile(slowdowns, 99) <= 2.5 and median(slowdowns) > 1.5


def test_a_prompt_is_there_no_later_than_after_the_others(
    make_bench, make_request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against serving in turn: answers of 50 tokens, then a prompt of 1,000."""

    def first_token(in_turn: bool) -> float:
        bench, machine = make_bench((2000, 2000), context=8192, max_running=1 if in_turn else 9), Machine()
        machine.drive(bench, monkeypatch)
        requests = [*(make_request(20, 50) for _ in range(8)), make_request(1000, 1)]
        for request in requests:
            bench.engine.submit(request)
        bench.run()
        return bench.answers[requests[-1]].finished.summary.ttft_s

    assert first_token(in_turn=False) <= first_token(in_turn=True)


def test_a_target_in_seconds_holds_and_is_in_the_ledger(
    make_bench, make_request, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, machine = make_bench((2000, 2000), context=8192, tpot_target=0.05), Machine(flop_s=3e8)
    machine.drive(bench, monkeypatch)
    run_with(bench, [make_request(20, 3000)], make_request(3000, 1))
    mixed = [r for r in bench.engine.ledger.recent if len(r.phases) == 2]
    assert len(mixed) > 5 and {record.target_s for record in mixed} == {0.05}
    assert np.percentile([record.seconds for record in mixed], 95) <= 0.055
    chunks = [record.phases[Phase.PREFILL].rows for record in mixed]
    assert all(rows % 16 == 0 for rows in chunks[:-1]) and max(chunks) > 16
    assert all(record.target_s is None for record in bench.engine.ledger.recent if len(record.phases) == 1)


def test_chunks_end_with_blocks_and_get_on_however_slow(
    make_bench, make_request, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, machine = make_bench((2000, 2000), context=8192), Machine(flop_s=1e4)  # one block takes for ever
    machine.drive(bench, monkeypatch)
    run_with(bench, [make_request(20, 3000)], prompt := make_request(700, 1))
    chunks = [c for step in bench.executor.batches for c in step.chunks if c.num_prompt_tokens == 700]
    assert prompt.num_generated == 1
    assert all(a.start + len(a.token_ids) == b.start and b.start % 16 == 0 for a, b in pairwise(chunks))
    assert {len(chunk.token_ids) for chunk in chunks[5:-1]} == {16}


def test_nobody_running_nothing_bounds_a_chunk(make_bench, make_request, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, machine = make_bench((2000, 2000), context=8192), Machine()
    machine.drive(bench, monkeypatch)
    bench.run(make_request(20, 30))
    bench.run(make_request(1024, 1))
    assert [len(c.token_ids) for step in bench.executor.batches[-2:] for c in step.chunks] == [512, 512]


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan"), float("inf")])
def test_a_target_that_is_none_is_refused(make_bench, target: float) -> None:
    with pytest.raises(ConfigError, match="tpot_target must be a number of seconds above 0"):
        make_bench(tpot_target=target)
