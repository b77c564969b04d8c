"""The ledger: phases and requests add up to the steps, by the cost model, and times are those of the clock."""

from dataclasses import fields

import pytest

from twostroke.engine import engine as engine_module
from twostroke.engine.account import PhaseTotals, Rates
from twostroke.engine.ledger import Ledger
from twostroke.engine.plan import StepPlan
from twostroke.engine.under_way import UnderWay
from twostroke.program.builder import Builder
from twostroke.program.cost import ChunkShape, CostModel, Resource, Storage
from twostroke.program.experts import Routed
from twostroke.program.phase import Phase

COSTS = ("flops", "weight_bytes", "kv_bytes", "activation_bytes")


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock takes a second."""

    class Clock:
        now = 0.0

        def __call__(self) -> float:
            self.now += 1.0
            return self.now

    ticking = Clock()
    monkeypatch.setattr(engine_module, "perf_counter", ticking)
    return ticking


def shapes(batch, phase=None) -> list[ChunkShape]:
    chosen = [c for c in batch.chunks if phase in (None, c.phase)]
    return [ChunkShape(c.start, len(c.token_ids), c.num_outputs) for c in chosen]


def total(parts: list[PhaseTotals], name: str) -> float:
    return sum(getattr(part, name) for part in parts)


@pytest.fixture
def mixed(make_bench, make_request):
    """A run with mixed steps, preemption, scores and forced rows."""
    bench = make_bench((9, 9), max_step_tokens=48, max_running=5)
    requests = [make_request(1 + 13 * i % 70, 40 + 7 * i % 31) for i in range(12)]
    requests += [make_request(30, 4, prompt_logprobs=True), make_request(9, 3, forced=[1, 2, 3])]
    bench.run(*requests)
    assert any(len({c.phase for c in step.chunks}) == 2 for step in bench.executor.batches)
    assert sum(request.num_preemptions for request in requests) > 0
    return bench, requests


def test_phases_add_up_to_what_the_steps_cost(mixed) -> None:
    bench, _ = mixed
    phases = [bench.engine.ledger.summary(phase) for phase in Phase]
    steps = [bench.executor.cost.step(shapes(batch)) for batch in bench.executor.batches]
    for name in COSTS:
        assert total(phases, name) == pytest.approx(sum(getattr(step, name) for step in steps), rel=1e-9)
    assert total(phases, "native_seconds") == pytest.approx(1e-6 * len(steps))
    assert total(phases, "rows") == sum(batch.num_tokens for batch in bench.executor.batches)


def test_what_is_a_phases_own_is_exact_in_mixed_steps_too(mixed) -> None:
    bench, _ = mixed
    for phase in Phase:
        own = [bench.executor.cost.step(shapes(batch, phase)) for batch in bench.executor.batches]
        summary = bench.engine.ledger.summary(phase)
        for name in ("flops", "kv_bytes", "activation_bytes"):
            assert getattr(summary, name) == pytest.approx(sum(getattr(step, name) for step in own), rel=1e-9)
        assert summary.steps == sum(any(c.phase is phase for c in batch.chunks) for batch in bench.executor.batches)
        assert summary.weight_bytes < sum(step.weight_bytes for step in own)


def test_requests_add_up_to_phases(mixed) -> None:
    bench, requests = mixed
    summaries = [bench.answers[request].finished.summary for request in requests]
    for phase in Phase:
        whole = bench.engine.ledger.summary(phase)
        for name in (*COSTS, "seconds", "native_seconds", "tokens", "rows"):
            parts = [getattr(summary, phase.value) for summary in summaries]
            assert total(parts, name) == pytest.approx(getattr(whole, name), rel=1e-9)
    assert sum(s.num_preemptions for s in summaries) == sum(r.num_preemptions for r in requests)


def test_recomputed_rows_are_rows_and_no_tokens(mixed) -> None:
    bench, requests = mixed
    prefill, decode = (bench.engine.ledger.summary(phase) for phase in Phase)
    assert prefill.tokens == sum(request.num_prompt for request in requests) < prefill.rows
    first = sum(request.num_generated > 0 and not request.num_forced for request in requests)
    after = sum(request.num_generated + request.num_forced for request in requests) - first
    assert decode.tokens == after - sum(request.num_forced > 0 for request in requests) < decode.rows


def test_a_request_alone_owns_its_steps(make_bench, make_request, clock) -> None:
    """And the time between them that the engine takes to keep its books, which here is after each: planning takes a
    second, the step two, taking it in one, and so does entering it, which counts with the next one."""
    bench = make_bench(max_chunk_tokens=16)
    (answer,) = bench.run(make_request(40, 5))
    summary, batches = answer.finished.summary, bench.executor.batches
    assert (summary.prompt_tokens, summary.completion_tokens) == (40, 5)
    assert (summary.prefill.tokens, summary.prefill.steps, summary.prefill.seconds) == (40, 3, 14.0)
    assert (summary.decode.tokens, summary.decode.steps, summary.decode.seconds) == (4, 4, 20.0)
    weights = sum(bench.executor.cost.step(shapes(batch)).weight_bytes for batch in batches[3:])
    assert summary.decode.weight_bytes == pytest.approx(weights, rel=1e-12)
    assert summary.decode.tok_s == 0.2 and summary.decode.flop_s == summary.decode.flops / 20


def test_times_are_those_of_the_clock(make_bench, make_request, clock) -> None:
    """Submitted at 1; a step looks at the clock seven times, the sixth to say when its tokens came."""
    bench, request = make_bench(max_chunk_tokens=16), make_request(40, 5)
    summary = bench.run(request)[0].finished.summary
    assert request.submitted_at == 1.0
    assert (summary.queue_s, summary.ttft_s, summary.tpot_s, summary.total_s) == (1.0, 20.0, 7.0, 48.0)


def test_times_of_what_did_not_happen_are_none(make_bench, make_request) -> None:
    bench = make_bench()
    one, nothing, cancelled = make_request(5, 1), make_request(5, 0), make_request(5, 9)
    bench.engine.submit(cancelled)
    bench.engine.cancel(cancelled)
    bench.run(one, nothing)
    summaries = [bench.answers[request].finished.summary for request in (one, nothing, cancelled)]
    assert [s.tpot_s for s in summaries] == [None] * 3
    assert summaries[0].ttft_s > 0 and summaries[1].ttft_s is None
    assert summaries[1].queue_s is not None and summaries[2].queue_s is None
    assert all(getattr(summaries[2].prefill, field.name) == 0 for field in fields(PhaseTotals))


def test_decode_rows_in_a_prefill_step_take_the_smaller_share(make_bench, make_request, clock) -> None:
    bench = make_bench()
    bench.engine.submit(make_request(10, 50))
    bench.step()
    bench.step()  # one of decode rows alone, before the first that mixes
    bench.engine.submit(make_request(200, 1))
    bench.step()
    record = bench.engine.ledger.recent[-1]
    prefill, decode = (record.phases[phase].totals() for phase in Phase)
    assert prefill.seconds + decode.seconds == pytest.approx(record.seconds)
    assert decode.seconds / prefill.seconds == pytest.approx(decode.flops / prefill.flops) and decode.rows == 1
    assert prefill.steps == decode.steps == 1


def test_the_record_is_bounded(make_bench, make_request) -> None:
    bench = make_bench()
    bench.engine.ledger = Ledger(bench.executor.cost, num_recent=10)
    bench.run(*(make_request(5, 30) for _ in range(3)))
    ledger = bench.engine.ledger
    assert len(ledger.recent) == 10 and not ledger._requests
    assert ledger.summary(Phase.DECODE).steps == 29


def test_experts_are_charged_once_a_step() -> None:
    """Chunks of one step share the experts that any of its rows chooses."""
    b = Builder()
    x = b.embed("table", 50, 8)
    mixed = b.experts(x, b.linear(x, "router", 8), "ffn", 16, Routed(8, 2, "topk_softmax"))
    b.output("logits", b.output_rows(mixed))
    program = b.build()
    cost = CostModel(program, Storage(dict.fromkeys(program.weights, 8.0)))
    rates, chunks = Rates(cost), [ChunkShape(0, 5, 1), ChunkShape(9, 1, 1), ChunkShape(3, 2, 0)]
    parts = [rates.amounts(chunk, chunk.length / 8, chunk.num_outputs / 2) for chunk in chunks]
    charged = sum(rates.price(Resource.WEIGHT_BYTES, amounts) for amounts in parts)
    assert charged == pytest.approx(cost.step(chunks).weight_bytes, rel=1e-12)


@pytest.mark.parametrize(
    ("native", "left", "called", "collected", "seconds"),
    [
        pytest.param(5.0, None, 3.0, 8.0, 2 + 5 + 1 + 0.5, id="waited for at once"),
        pytest.param(5.0, 4.0, 6.0, 8.0, 2 + 5 + 1 + 0.5, id="other threads ran while the caller was away"),
        pytest.param(5.0, 4.0, 60.0, 60.5, 2 + 5 + 1 + 0.5, id="done long before it was called for"),
        pytest.param(5.0, 4.0, 60.0, 65.0, 2 + 6 + 1 + 0.5, id="no other thread: what came before is counted"),
    ],
)
def test_what_a_step_took(native, left, called, collected, seconds) -> None:
    """Planned from 1 to 3, taken in for a second; half a second was spent on the one before."""
    step = UnderWay(StepPlan(()), None, started=1.0, begun=3.0, more_s=0.5, left=left)
    assert step.seconds(native, called, collected, collected + 1) == seconds
