"""Steps laid out before their tokens are known: the same text in the same steps, and none that would not have been."""

import numpy as np
import pytest

from twostroke.engine.events import NewToken
from twostroke.engine.loop import EngineLoop
from twostroke.engine.request import FinishReason


def run_on(bench, *requests) -> list[list[int]]:
    """The texts of requests whose engine is driven as the loop drives it, nothing coming in between."""
    for request in requests:
        bench.engine.submit(request)
    ids = {request: [] for request in requests}
    while bench.engine.has_work:
        bench.engine.begin()
        bench.engine.finish(lambda: True)
        bench.check_blocks()
        for event in bench.engine.take_events():
            if isinstance(event, NewToken):
                ids[event.request].append(event.token_id)
    return list(ids.values())


def assert_same(bench, plain) -> None:
    """Both ran the same steps."""
    assert len(bench.executor.batches) == len(plain.executor.batches)
    for ours, theirs in zip(bench.executor.batches, plain.executor.batches, strict=True):
        for a, b in zip(ours.chunks, theirs.chunks, strict=True):
            assert (a.start, a.phase, a.num_outputs, a.output_index) == (
                b.start,
                b.phase,
                b.num_outputs,
                b.output_index,
            )
            np.testing.assert_array_equal(a.token_ids, b.token_ids)
            for ids, others in zip(a.block_ids, b.block_ids, strict=True):
                np.testing.assert_array_equal(ids, others)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_the_same_steps_most_of_them_laid_out_ahead(make_bench, make_request, count: int) -> None:
    def requests():
        return [
            make_request(3 + 5 * i, 40 + i, num_logprobs=i % 3 - 1, temperature=0.5 * (i % 2)) for i in range(count)
        ]

    bench, plain = make_bench(prefix_cache=True), make_bench(prefix_cache=True)
    assert run_on(bench, *requests()) == [answer.ids for answer in plain.run(*requests())]
    assert_same(bench, plain)
    assert not plain.executor.num_ahead
    # not the first, not where someone ends, and not where someone's block is full
    least = len(plain.executor.batches) - 1 - count - count * -(-49 // 16)
    assert bench.executor.num_ahead >= max(least, 10)


def test_no_step_is_run_for_a_token_that_ends_its_request(make_bench, make_request) -> None:
    (text,) = run_on(make_bench(), make_request(5, 12))
    stop = frozenset(text[7:8])
    for ignores, length in ((False, text.index(text[7]) + 1), (True, 12)):
        bench = make_bench()
        request = make_request(5, 12, stop_ids=stop, ignore_eos=ignores)
        assert run_on(bench, request) == [text[:length]]
        assert len(bench.executor.batches) == length and bench.executor.num_ahead
        assert request.finish_reason is (FinishReason.LENGTH if ignores else FinishReason.STOP)


def test_what_hangs_on_the_token_is_not_laid_out_before_it(make_bench, make_request) -> None:
    for request in (make_request(5, 12, repetition_penalty=1.2), make_request(5, 12, frequency_penalty=0.5)):
        bench, plain = make_bench(), make_bench()
        again = make_request(
            5,
            12,
            **{name: getattr(request.params.sampling, name) for name in ("repetition_penalty", "frequency_penalty")},
        )
        assert run_on(bench, request) == [plain.run(again)[0].ids]
        assert_same(bench, plain)
        assert not bench.executor.num_ahead


def test_drafts_are_asked_for_where_there_are_some(make_bench, make_request) -> None:
    """A prompt that repeats itself has a draft for nearly every token; each step must be what it is without."""
    bench, plain = make_bench(speculation=True), make_bench(speculation=True)
    prompt = [1, 2, 3, 4, 5, 6] * 6
    assert run_on(bench, make_request(prompt, 60)) == [plain.run(make_request(prompt, 60))[0].ids]


def test_who_comes_while_a_step_runs_is_in_the_next(make_bench, make_request) -> None:
    bench = make_bench()
    loop = EngineLoop(bench.engine)
    first = loop.submit(make_request(5, 40))
    for _ in range(4):
        next(first)
    assert bench.executor.num_ahead
    collect, come = bench.executor.collect, []

    def collect_and_submit(handle):
        if not come:
            come.append(loop.submit(make_request(7, 4)))
        return collect(handle)

    bench.executor.collect = collect_and_submit
    before = len(bench.executor.batches)
    next(first)
    assert [len(batch.chunks) for batch in bench.executor.batches[before:]] == [2]
    assert len([event for event in come[0] if isinstance(event, NewToken)]) == 4


def test_a_fault_of_a_step_laid_out_ahead_ends_its_requests_alone(make_bench, make_request) -> None:
    bench = make_bench()
    loop = EngineLoop(bench.engine)
    bench.executor.fails_at = 5
    stream = loop.submit(make_request(5, 30))
    with pytest.raises(OSError, match="told to fail"):
        list(stream)
    assert bench.executor.num_ahead and bench.engine.cache.num_free == 256
    assert len(list(loop.submit(make_request(5, 9)))) == 10


def test_an_interrupt_while_a_step_laid_out_ahead_starts_loses_no_other_request(make_bench, make_request) -> None:
    """What the step before brought may be lost with it: its requests end; the engine goes on."""
    bench = make_bench()
    start = bench.executor.start

    def interrupted(batch, token_ids=None):
        start(batch, token_ids)
        if token_ids is not None:
            bench.executor.start = start
            raise KeyboardInterrupt

    bench.executor.start = interrupted
    request = make_request(5, 30)
    bench.engine.submit(request)
    with pytest.raises(KeyboardInterrupt):
        run_on(bench)
    assert request.finish_reason is FinishReason.ERROR
    other = make_request(6, 9)
    assert run_on(bench, other) == [make_bench().run(make_request(6, 9))[0].ids]
    assert bench.engine.cache.num_free == 256


def test_blocks_are_offered_while_no_step_runs(make_bench, make_request) -> None:
    """An offered block may be replaced by an equal one, which a step that runs would see."""
    bench = make_bench(prefix_cache=True)
    offer, offered = bench.engine.cache.offer, []

    def offer_between_steps(table, keys) -> None:
        assert bench.engine._under_way is None
        offered.append(len(keys))
        offer(table, keys)

    bench.engine.cache.offer = offer_between_steps
    expected = [answer.ids for answer in make_bench().run(make_request(40, 50), make_request(21, 30))]
    assert run_on(bench, make_request(40, 50), make_request(21, 30)) == expected
    assert len(offered) > 4 and bench.executor.num_ahead > 30
