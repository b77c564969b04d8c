"""EngineLoop: many threads, one engine."""

import threading
from collections.abc import Callable

import pytest

from twostroke.engine.events import Finished, NewToken
from twostroke.engine.loop import EngineLoop
from twostroke.engine.request import FinishReason
from twostroke.errors import EngineStoppedError, InvalidRequestError


def ids_of(events) -> list[int]:
    return [event.token_id for event in events if isinstance(event, NewToken)]


def run_threads(work: Callable[[int], None], count: int) -> None:
    failures: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    assert failures == []


def test_a_stream_ends_after_finished(make_bench, make_request) -> None:
    stream = EngineLoop(make_bench().engine).submit(make_request(5, 4))
    events = list(stream)
    assert len(ids_of(events)) == 4 and isinstance(events[-1], Finished) and list(stream) == []


def test_one_thread_may_read_its_streams_in_any_order(make_bench, make_request) -> None:
    bench = make_bench()
    loop = EngineLoop(bench.engine)
    streams = [loop.submit(make_request(5 + i, 4)) for i in range(6)]
    texts = [ids_of(stream) for stream in reversed(streams)][::-1]
    assert texts == [make_bench().run(make_request(5 + i, 4))[0].ids for i in range(6)]
    assert max(len(step.chunks) for step in bench.executor.batches) == 6


def test_threads_get_their_own_text(make_bench, make_request) -> None:
    bench = make_bench((20, 20), max_step_tokens=64)
    loop = EngineLoop(bench.engine)
    expected = [make_bench().run(make_request(3 + 5 * i, 20))[0].ids for i in range(12)]

    all_submitted = threading.Barrier(12)

    def work(index: int) -> None:
        for number in range(4):
            with loop.submit(make_request(3 + 5 * index, 20)) as stream:
                if number == 0:
                    all_submitted.wait(60)  # so that some run together, however the system takes turns
                assert ids_of(stream) == expected[index]

    run_threads(work, 12)
    assert not bench.engine.has_work
    assert all(pool.num_free == 20 for pool in bench.engine.cache.pools)
    assert max(len(step.chunks) for step in bench.executor.batches) > 1


def test_leaving_a_stream_cancels_it_and_spares_others(make_bench, make_request) -> None:
    bench = make_bench()
    loop = EngineLoop(bench.engine)
    other = loop.submit(make_request(9, 30))
    with loop.submit(make_request(8, 1000)) as stream:
        next(stream)
    assert stream.request.finish_reason is FinishReason.CANCELLED
    assert bench.engine.num_running == 1 and len(ids_of(other)) == 30
    assert not bench.engine.has_work


def test_cancelling_from_another_thread_ends_the_stream(make_bench, make_request) -> None:
    loop = EngineLoop(make_bench().engine)
    stream = loop.submit(make_request(8, 1900))
    started = threading.Event()

    def work(index: int) -> None:
        if index:
            assert started.wait(60)
            loop.cancel(stream.request)
        else:
            for _ in stream:
                started.set()
            assert stream.request.finish_reason is FinishReason.CANCELLED

    run_threads(work, 2)


def test_submitting_and_cancelling_do_not_wait_for_a_step(make_bench, make_request) -> None:
    bench = make_bench()
    loop = EngineLoop(bench.engine)
    in_step, go_on = threading.Event(), threading.Event()
    collect = bench.executor.collect

    def slow_collect(handle):
        in_step.set()
        assert go_on.wait(60)
        return collect(handle)

    bench.executor.collect = slow_collect
    first = loop.submit(make_request(5, 3))

    def work(index: int) -> None:
        if index:
            assert in_step.wait(60)
            second, third = loop.submit(make_request(6, 3)), loop.submit(make_request(7, 3))
            loop.cancel(third.request)
            go_on.set()
            assert len(ids_of(second)) == 3 and ids_of(third) == []
        else:
            assert len(ids_of(first)) == 3

    run_threads(work, 2)
    assert not bench.engine.has_work


def test_the_next_step_runs_while_events_of_the_last_are_read(make_bench, make_request) -> None:
    """Its last token needs no step after it; and who comes meanwhile is in the step after the one under way."""
    bench = make_bench()
    loop = EngineLoop(bench.engine)
    stream, seen = loop.submit(make_request(5, 6)), []
    for event in stream:
        seen.append(len(bench.executor.batches))
        if len(seen) == 2:
            other = loop.submit(make_request(6, 2))
        assert isinstance(event, Finished) or len(seen) < 7
    assert seen == [2, 3, 4, 5, 6, 6, 6]
    assert [len(batch.chunks) for batch in bench.executor.batches] == [1, 1, 1, 2, 2, 1]
    assert ids_of(other) == make_bench().run(make_request(6, 2))[0].ids


def test_a_request_that_ends_while_its_step_runs_takes_nothing_from_it(make_bench, make_request) -> None:
    """Its blocks are free at once; those who share the step get what they would have got, its outputs being skipped."""
    bench = make_bench((12, 12), max_step_tokens=64)
    loop = EngineLoop(bench.engine)
    first, other = loop.submit(make_request(20, 30, num_logprobs=2)), loop.submit(make_request(9, 30))
    while len(bench.executor.batches[-1:]) < 1 or len(bench.executor.batches[-1].chunks) < 2:
        next(first)
    others_blocks = other.request.table.num_blocks
    first.close()
    assert all(pool.num_free == 12 - others_blocks for pool in bench.engine.cache.pools)
    assert isinstance(list(first)[-1], Finished)
    third = loop.submit(make_request(31, 12))  # in blocks that the step under way had written
    (expected, thirds) = make_bench().run(make_request(9, 30), make_request(31, 12))
    assert ids_of(other) == expected.ids and ids_of(third) == thirds.ids
    assert not bench.engine.has_work and all(pool.num_free == 12 for pool in bench.engine.cache.pools)


def test_a_pause_waits_for_the_step_under_way_and_loses_nothing(make_bench, make_request) -> None:
    bench = make_bench()
    loop = EngineLoop(bench.engine)
    stream = loop.submit(make_request(5, 6))
    collected, collect = [], bench.executor.collect
    bench.executor.collect = lambda handle: collected.append(handle) or collect(handle)
    next(stream)
    assert len(collected) == len(bench.executor.batches) - 1
    with loop.paused():
        assert len(collected) == len(bench.executor.batches)
    assert len(ids_of(stream)) == 5


def test_random_threads_that_leave_early_return_every_block(make_bench, make_request) -> None:
    bench = make_bench((14, 14), max_step_tokens=32)
    loop = EngineLoop(bench.engine)

    def work(index: int) -> None:
        for turn in range(6):
            with loop.submit(make_request(1 + 7 * index, 40)) as stream:
                for count, _ in enumerate(stream):
                    if count == (index * turn) % 45:
                        break

    run_threads(work, 10)
    bench.engine.step()
    assert not bench.engine.has_work and all(pool.num_free == 14 for pool in bench.engine.cache.pools)


def test_a_failed_request_raises_where_it_is_read_and_the_loop_lives(make_bench, make_request) -> None:
    bench = make_bench()
    loop = EngineLoop(bench.engine)
    bench.executor.fails_at = 2
    stream = loop.submit(make_request(5, 9))
    with pytest.raises(OSError, match="told to fail"):
        list(stream)
    assert len(ids_of(loop.submit(make_request(5, 9)))) == 9


def test_an_interrupt_is_no_failure_of_anyones_request(make_bench, make_request) -> None:
    """The step it fell into has not happened: the text of all is what it would have been."""
    (expected,) = make_bench().run(make_request(6, 9))
    bench = make_bench()
    loop = EngineLoop(bench.engine)
    other = loop.submit(make_request(6, 9))
    collect, calls = bench.executor.collect, []

    def interrupted(handle):
        calls.append(handle)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return collect(handle)

    bench.executor.collect = interrupted
    stream = loop.submit(make_request(5, 9))
    next(stream)
    with pytest.raises(KeyboardInterrupt), stream:
        next(stream)
    assert ids_of(other) == expected.ids and other.request.finish_reason is FinishReason.LENGTH
    assert stream.request.finish_reason is FinishReason.CANCELLED
    assert all(pool.num_free == pool.num_blocks for pool in bench.engine.cache.pools)
    assert len(ids_of(loop.submit(make_request(5, 9)))) == 9


def test_a_refused_request_leaves_nothing_behind(make_bench, make_request) -> None:
    bench = make_bench()
    loop = EngineLoop(bench.engine)
    with pytest.raises(InvalidRequestError):
        loop.submit(make_request(5, top_p=0.0))
    assert not bench.engine.has_work and not loop._sinks


def test_a_fault_in_the_thread_that_drives_for_all_ends_every_wait(make_bench, make_request, monkeypatch) -> None:
    """Those that wait raise it at once, and so does whoever comes later; cancelling touches the engine no more."""
    bench = make_bench()
    loop = EngineLoop(bench.engine)
    begun, go = threading.Event(), threading.Event()

    def schedule():
        begun.set()
        assert go.wait(60)
        raise ArithmeticError("a fault")

    monkeypatch.setattr(bench.engine._scheduler, "schedule", schedule)
    stream = loop.submit(make_request(5, 9))
    raised: list[BaseException] = []

    def drive() -> None:
        try:
            loop.run(lambda: False)
        except ArithmeticError as error:
            raised.append(error)

    def read() -> None:
        try:
            next(stream)
        except EngineStoppedError as error:
            raised.append(error)

    driver, reader = threading.Thread(target=drive), threading.Thread(target=read)
    driver.start()
    assert begun.wait(60)
    reader.start()
    go.set()
    driver.join(60)
    reader.join(60)
    fault = loop.error
    assert isinstance(fault, ArithmeticError) and len(raised) == 2
    assert [error.__cause__ for error in raised if error is not fault] == [fault]
    with pytest.raises(EngineStoppedError, match="stopped by a fault"):
        loop.submit(make_request(5, 9))
    monkeypatch.setattr(bench.engine, "cancel", lambda request: pytest.fail("the engine was used"))
    stream.close()
