"""Order, budget, admission, cancellation, failures, and a long random soak."""

import random

import pytest

from twostroke.engine.config import EngineConfig
from twostroke.engine.engine import Engine
from twostroke.engine.events import Finished
from twostroke.engine.request import FinishReason, State
from twostroke.errors import ConfigError, UnsupportedModelError
from twostroke.program.builder import Builder
from twostroke.program.cost import CostModel, Storage
from twostroke.program.phase import Phase


def test_first_come_first_served(make_bench, make_request) -> None:
    """Nobody overtakes: a long prompt that has to wait for blocks is not passed by a short one behind it."""
    bench = make_bench((10, 10))
    first, long, short = make_request(80, 30), make_request(120, 2), make_request(3, 2)
    for request in (first, long, short):
        bench.engine.submit(request)
    finished = []
    while bench.engine.has_work:
        finished += [event.request for event in bench.step() if isinstance(event, Finished)]
        if first.state is not State.FINISHED:
            assert long.state is short.state is State.WAITING
    assert finished == [first, long, short]


def test_several_prompts_and_running_decodes_share_a_step(make_bench, make_request) -> None:
    bench = make_bench(max_step_tokens=64)
    running = make_request(10, 50)
    bench.engine.submit(running)
    bench.step()
    bench.step()
    for length in (20, 30, 40):
        bench.engine.submit(make_request(length, 5))
    bench.step()
    chunks = bench.executor.batches[-1].chunks
    assert [(c.phase, len(c.token_ids), c.num_outputs) for c in chunks] == [
        (Phase.DECODE, 1, 1),
        (Phase.PREFILL, 20, 1),
        (Phase.PREFILL, 30, 1),
        (Phase.PREFILL, 13, 0),
    ]


def test_a_long_prompt_does_not_stop_running_decodes(make_bench, make_request) -> None:
    bench = make_bench(max_step_tokens=32, max_chunk_tokens=16)
    running = make_request(10, 60)
    bench.engine.submit(running)
    bench.step()
    bench.engine.submit(make_request(500, 1))
    rows = []
    for expected in range(2, 30):
        bench.step()
        assert running.num_generated == expected
        rows.append([len(c.token_ids) for c in bench.executor.batches[-1].chunks])
    assert rows == [[1], *[[1, 16]] * 16, [1], *[[1, 16]] * 10]  # now and then one without, to see what decode takes


def test_a_short_prompt_does_not_wait_for_a_long_one_before_it(make_bench, make_request) -> None:
    """It shares the next steps, half of each at most, and the long one still gets on in every step (BAT-17)."""
    bench = make_bench(max_step_tokens=64)
    long, shorts = make_request(1500, 1), [make_request(40 + number, 1) for number in range(3)]
    bench.engine.submit(long)
    bench.step()
    for request in shorts:
        bench.engine.submit(request)
    steps = 0
    while not all(request.num_generated for request in shorts):
        bench.step()
        steps += 1
        rows = {chunk.num_prompt_tokens: len(chunk.token_ids) for chunk in bench.executor.batches[-1].chunks}
        assert rows[1500] >= 32 and sum(rows.values()) == 64
    assert steps == 4 and long.num_computed == 64 * (1 + steps) - sum(40 + number for number in range(3))


def test_equal_prompts_come_one_after_another(make_bench, make_request) -> None:
    bench = make_bench(max_step_tokens=32)
    first, second = make_request(100, 1), make_request(101, 1)
    bench.engine.submit(first)
    bench.engine.submit(second)
    while not first.num_generated:
        bench.step()
        assert first.num_generated or not second.num_computed


def test_the_executors_own_row_limit_holds(make_bench, make_request) -> None:
    bench = make_bench(executor_rows=8, max_running=64)
    bench.run(*(make_request(20, 10) for _ in range(12)))
    assert max(step.num_tokens for step in bench.executor.batches) == 8


def test_preemption_takes_the_latest_and_returns_it_to_the_front(make_bench, make_request) -> None:
    bench = make_bench((6, 6))
    oldest, latest, waiting = make_request(30, 60), make_request(28, 25), make_request(29, 3)
    for request in (oldest, latest, waiting):
        bench.engine.submit(request)
    while not latest.num_preemptions:
        bench.step()
    assert oldest.state is State.DECODE and latest.state is waiting.state is State.WAITING
    assert list(bench.engine._scheduler.queues.waiting) == [latest, waiting]
    bench.run()
    assert not oldest.num_preemptions


@pytest.mark.parametrize("state", [State.WAITING, State.PREFILL, State.DECODE])
def test_cancellation_frees_blocks_at_once_and_spares_others(make_bench, make_request, state: State) -> None:
    bench = make_bench(max_chunk_tokens=16, max_running=1 if state is State.WAITING else 2)
    (expected,) = make_bench().run(make_request(50, 20))
    other, victim = make_request(50, 20), make_request(60, 30)
    bench.engine.submit(other)
    bench.engine.submit(victim)
    bench.step()
    while victim.state is not state:
        bench.step()
    bench.engine.cancel(victim)
    bench.check_blocks()
    assert victim.table.num_blocks == 0 and victim.finish_reason is FinishReason.CANCELLED
    bench.run()
    assert bench.answers[other].ids == expected.ids and other.finish_reason is FinishReason.LENGTH
    assert bench.answers[victim].finished is not None
    assert all(pool.num_free == pool.num_blocks for pool in bench.engine.cache.pools)


def test_cancelling_twice_or_after_the_end_does_nothing(make_bench, make_request) -> None:
    bench, done, twice = make_bench(), make_request(5, 2), make_request(6, 2)
    bench.run(done)
    bench.engine.cancel(done)
    assert done.finish_reason is FinishReason.LENGTH and not bench.engine.has_work
    bench.engine.submit(twice)
    bench.engine.cancel(twice)
    bench.engine.cancel(twice)
    assert [type(event) for event in bench.step()] == [Finished]


def test_a_failing_step_ends_its_requests_and_no_others(make_bench, make_request) -> None:
    bench = make_bench(max_running=2)
    (expected,) = make_bench().run(make_request(22, 6))
    bench.executor.fails_at = 3
    first, second, third = make_request(20, 6), make_request(21, 6), make_request(22, 6)
    bench.run(first, second, third)
    for failed in (first, second):
        assert failed.finish_reason is FinishReason.ERROR and isinstance(failed.error, OSError)
        assert bench.answers[failed].finished is not None
    assert bench.answers[third].ids == expected.ids and third.error is None
    assert all(pool.num_free == pool.num_blocks for pool in bench.engine.cache.pools)


def test_settings_below_one_are_refused(make_bench) -> None:
    with pytest.raises(ConfigError, match="max_running must be at least 1, not 0"):
        make_bench(max_running=0)


@pytest.mark.parametrize("delta", [True, False])
def test_a_program_with_recurrent_states_is_refused(make_bench, delta: bool) -> None:
    """Its chunks would end anywhere, and its states be neither shared, kept nor given up with the blocks."""
    b = Builder()
    x = b.embed("token_embd", 211, 16)
    q, k, v, write, decay = (b.linear(x, f"blk.0.{name}", 16) for name in ("q", "k", "v", "write", "decay"))
    mixed = b.gated_delta(q, k, v, write, decay, "blk.0.ssm", num_key_heads=16) if delta else b.convolution(q, "c", 4)
    b.output("logits", b.linear(b.output_rows(mixed), "output", 211))
    program = b.build()
    assert program.chunk_alignment == (64 if delta else 1)
    executor = make_bench().executor
    executor.cost = CostModel(program, Storage(dict.fromkeys(program.weights, 16.0)))
    with pytest.raises(UnsupportedModelError, match="recurrent states"):
        Engine(executor, EngineConfig(211, 64))


@pytest.mark.parametrize("seed", range(6))
def test_random_soak_keeps_every_block_accounted_for(make_bench, make_request, seed: int) -> None:
    """Random arrivals, cancellations and pool sizes; blocks are counted after every step (in `Bench.step`)."""
    rng = random.Random(seed)
    pool = rng.randint(11, 25)
    bench = make_bench((pool, pool + 2), max_step_tokens=rng.choice([17, 64]), max_chunk_tokens=16, max_running=6)
    kept, cancelled = [], []
    for _ in range(400):
        if rng.random() < 0.25:
            request = make_request(rng.randint(1, 90), rng.randint(0, 70), prompt_logprobs=rng.random() < 0.2)
            bench.engine.submit(request)
            (kept if rng.random() < 0.7 else cancelled).append(request)
        if cancelled and rng.random() < 0.1:
            bench.engine.cancel(rng.choice(cancelled))
            bench.check_blocks()
        bench.step()
    bench.run()
    assert [pool.num_free for pool in bench.engine.cache.pools] == [pool, pool + 2]
    assert sum(request.num_preemptions for request in kept + cancelled) > 0
    for request in rng.sample(kept, 12):
        again = make_request(request.num_prompt, request.params.max_tokens)
        assert make_bench().run(again)[0].ids == bench.answers[request].ids
