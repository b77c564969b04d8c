"""Chunks sized in time, on a machine whose clock is simulated: how long steps of running answers get, and how short."""

from collections.abc import Callable
from itertools import pairwise
from statistics import median

import numpy as np
import pytest

from twostroke.engine import engine as engine_module
from twostroke.errors import ConfigError
from twostroke.program.cost import ChunkShape, StepCost
from twostroke.program.phase import Phase


class Machine:
    """A clock that a fake executor's steps move: bytes at one rate, FLOPs at another, a pass over the weights for
    prompt rows. `weather` multiplies the time of the n-th step."""

    def __init__(self, byte_s: float = 1e6, flop_s: float = 8e6, pass_s: float = 0.0) -> None:
        self.now, self.byte_s, self.flop_s, self.pass_s = 0.0, byte_s, flop_s, pass_s
        self.weather: Callable[[int], float] = lambda step: 1.0
        self.mixed: list[tuple[float, float]] = []  # of each mixed step: seconds, and those of its decode rows alone
        self.num_steps = 0

    def seconds(self, cost: StepCost, has_prompt: bool) -> float:
        return cost.bytes / self.byte_s + cost.flops / self.flop_s + has_prompt * self.pass_s

    def drive(self, bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine_module, "perf_counter", lambda: self.now)
        run = bench.engine._executor.collect

        def collect(batch):
            plan, cost = self.plan, bench.executor.cost
            weather = self.weather(self.num_steps)
            has_prompt = any(chunk.phase is Phase.PREFILL for chunk in plan.chunks)
            seconds = weather * self.seconds(cost.step(plan.chunks), has_prompt)
            if 0 < plan.num_decode < len(plan.chunks):
                self.mixed.append((seconds, weather * self.seconds(cost.step(plan.decode), False)))
            self.now += seconds
            self.num_steps += 1
            return run(batch)

        schedule = bench.engine._scheduler.schedule

        def kept():
            self.plan = schedule()
            return self.plan

        monkeypatch.setattr(bench.engine._executor, "collect", collect)
        monkeypatch.setattr(bench.engine._scheduler, "schedule", kept)


def run_with(bench, streams, prompt, num_steps: int = 200) -> None:
    """Streams for so many steps, then a prompt beside them until its first token."""
    for request in streams:
        bench.engine.submit(request)
    for _ in range(num_steps):
        bench.step()
    bench.engine.submit(prompt)
    while not prompt.num_generated:
        bench.step()


@pytest.mark.parametrize(
    ("num_streams", "flop_s", "weather"),
    [
        (1, 8e6, "calm"),
        (16, 4e7, "calm"),
        (16, 8e6, "interrupted"),
        (1, 4e7, "twice as slow"),
        (16, 8e6, "twice as slow"),
        (1, 4e7, "twice as slow soon"),
        (16, 8e6, "twice as slow soon"),
    ],
)
def test_running_answers_slow_down_no_more_than_told(
    make_bench, make_request, monkeypatch: pytest.MonkeyPatch, num_streams: int, flop_s: float, weather: str
) -> None:
    """About twice while a prompt of 4,000 tokens is computed, at most 2.5 times by the 99th percentile; also where one
    step in twenty takes ten times as long, and where from some step on all take twice as long, many steps known or few.
    """
    bench, machine = make_bench((2000, 2000), context=8192, tpot_target=None, dim=8192), Machine(flop_s=flop_s)
    machine.drive(bench, monkeypatch)
    interrupted = weather == "interrupted"
    if interrupted:
        machine.weather = lambda step: 10.0 if step % 20 == 7 else 1.0
    num_steps = 30 if weather == "twice as slow soon" else 200
    if weather.startswith("twice as slow"):
        machine.weather = lambda step: 1.0 + (step > num_steps + 20)
    run_with(bench, [make_request(20 + i, 3000) for i in range(num_streams)], make_request(4000, 1), num_steps)
    slowdowns = [seconds / alone for seconds, alone in machine.mixed[num_streams:]]
    assert len(slowdowns) > 20
    assert np.percentile(slowdowns, 99) <= 2.5 and 1.6 < median(slowdowns) < 2.25


def test_a_pass_over_the_weights_is_worth_its_time(make_bench, make_request, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a step's first prompt row takes as long as the answers' rows do, chunks are long enough for three quarters
    of prefill's time to be the rows' own."""
    bench, machine = make_bench((2000, 2000), context=8192, tpot_target=None, dim=8192), Machine()
    machine.pass_s = machine.seconds(bench.executor.cost.step((ChunkShape(300, 1, 1, phase=Phase.DECODE),)), False)
    machine.drive(bench, monkeypatch)
    bench.run(make_request(600, 1))
    run_with(bench, [make_request(20, 3000)], make_request(4000, 1))
    rows_s = [seconds - alone - machine.pass_s for seconds, alone in machine.mixed[20:-1]]
    assert 2.2 * machine.pass_s < median(rows_s) < 4 * machine.pass_s


def test_all_who_are_served_share_the_time(make_bench, make_request, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven prompts beside one answer have seven eighths of the time, four beside four half of it."""
    bench, machine = (
        make_bench((2000, 2000), context=8192, tpot_target=None, max_running=8, dim=8192),
        Machine(flop_s=8e7),
    )
    machine.drive(bench, monkeypatch)
    bench.engine.submit(make_request(20, 3000))
    for _ in range(100):
        bench.step()
    for number in range(9):  # two more than may run
        bench.engine.submit(make_request(1500 + number, 3000))
    bench.step()
    by_answers: dict[int, list[float]] = {}
    while not bench.engine._scheduler.queues.running[-1].num_generated:
        bench.step()
        if 0 < (count := machine.plan.num_decode) < len(machine.plan.chunks):
            by_answers.setdefault(count, []).append(machine.mixed[-1][0] / machine.mixed[-1][1])
    slowdowns = {count: median(found) for count, found in by_answers.items()}
    assert slowdowns[1] == pytest.approx(8, rel=0.2) and slowdowns[2] == pytest.approx(4, rel=0.2)
    assert slowdowns[4] == pytest.approx(2, rel=0.2) and slowdowns[7] == pytest.approx(2, rel=0.2)


def test_a_prompt_is_there_no_later_than_after_the_others(
    make_bench, make_request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against serving in turn: answers of 50 tokens, then a prompt of 1,000."""

    def first_token(in_turn: bool) -> float:
        bench, machine = (
            make_bench((2000, 2000), context=8192, tpot_target=None, max_running=1 if in_turn else 9, dim=8192),
            Machine(),
        )
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
    bench, machine = make_bench((2000, 2000), context=8192, tpot_target=6.0, dim=8192), Machine(flop_s=4e7)
    machine.drive(bench, monkeypatch)
    run_with(bench, [make_request(20, 3000)], make_request(3000, 1))
    mixed = [r for r in bench.engine.ledger.recent if len(r.phases) == 2]
    assert len(mixed) > 5 and {record.target_s for record in mixed} == {6.0}
    assert np.percentile([record.seconds for record in mixed], 95) <= 6.6
    chunks = [record.phases[Phase.PREFILL].rows for record in mixed]
    assert max(chunks) > 10
    assert all(record.target_s is None for record in bench.engine.ledger.recent if len(record.phases) == 1)


@pytest.mark.parametrize("flop_s", [1e5, 1e8])
def test_a_target_that_cannot_be_met_leaves_prompts_a_fifth_of_the_time(
    make_bench, make_request, monkeypatch: pytest.MonkeyPatch, flop_s: float
) -> None:
    """And one row at least."""
    bench, machine = make_bench((2000, 2000), context=8192, tpot_target=1e-6), Machine(flop_s=flop_s)
    machine.drive(bench, monkeypatch)
    run_with(bench, [make_request(20, 3000)], prompt := make_request(700, 1))
    chunks = [c for step in bench.executor.batches for c in step.chunks if c.num_prompt_tokens == 700]
    assert prompt.num_generated == 1
    assert all(a.start + len(a.token_ids) == b.start for a, b in pairwise(chunks))
    shares = [1 - alone / seconds for seconds, alone in machine.mixed[5:]]
    assert median(shares) >= 0.15 and min(len(chunk.token_ids) for chunk in chunks) == 1


def test_nobody_running_nothing_bounds_a_chunk(make_bench, make_request, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, machine = make_bench((2000, 2000), context=8192, tpot_target=None), Machine()
    machine.drive(bench, monkeypatch)
    bench.run(make_request(20, 30))
    bench.run(make_request(1024, 1))
    assert [len(c.token_ids) for step in bench.executor.batches[-2:] for c in step.chunks] == [512, 512]


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan"), float("inf")])
def test_a_target_that_is_none_is_refused(make_bench, target: float) -> None:
    with pytest.raises(ConfigError, match="tpot_target must be a number of seconds above 0"):
        make_bench(tpot_target=target)
