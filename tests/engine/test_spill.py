"""The engine with a disk tier: prompts take up again what the pool gave up, also after a restart, bit for bit."""

import time
from pathlib import Path

import pytest

PROMPTS = [[start, *range(1, 100)] for start in range(5)]


@pytest.fixture
def on_disk(make_bench, tmp_path: Path):
    def make(num_blocks=(16, 17), **settings):
        return make_bench(num_blocks, prefix_cache=True, kv_disk=str(tmp_path / "kv"), **settings)

    return make


def alone(make_bench, make_request) -> list[list[int]]:
    return [make_bench().run(make_request(list(prompt), 12))[0].ids for prompt in PROMPTS]


def ask(bench, make_request) -> tuple[list[list[int]], list[int]]:
    """Answers, one after the other, and the prompt tokens that were cached."""
    requests = [make_request(list(prompt), 12) for prompt in PROMPTS]
    return [bench.run(request)[0].ids for request in requests], [request.num_cached for request in requests]


def test_what_the_pool_gave_up_comes_back(on_disk, make_bench, make_request) -> None:
    bench = on_disk()
    expected = alone(make_bench, make_request)
    assert ask(bench, make_request) == (expected, [0] * 5)
    assert ask(bench, make_request) == (expected, [96] * 5)
    bench.engine.close()
    bare = make_bench((16, 17), prefix_cache=True)
    ask(bare, make_request)
    assert ask(bare, make_request)[1] != [96] * 5


def test_a_restart_finds_it(on_disk, make_bench, make_request) -> None:
    first = on_disk((256, 256))
    ask(first, make_request)
    first.engine.close()
    second = on_disk((256, 256))
    assert ask(second, make_request) == (alone(make_bench, make_request), [96] * 5)
    second.engine.close()


def test_another_model_or_salt_does_not(on_disk, make_request) -> None:
    first = on_disk((256, 256), model_id="a")
    ask(first, make_request)
    first.engine.close()
    second = on_disk((256, 256), model_id="b")
    assert ask(second, make_request)[1] == [0] * 5
    second.engine.close()


def test_damage_is_computed_again(on_disk, make_bench, make_request, tmp_path: Path) -> None:
    first = on_disk((256, 256))
    ask(first, make_request)
    first.engine.close()
    for index, path in enumerate(sorted((tmp_path / "kv").iterdir())):
        content = bytearray(path.read_bytes())
        content[-1 - index] ^= index % 2
        path.write_bytes(content)
    second = on_disk((256, 256))
    answers, cached = ask(second, make_request)
    assert answers == alone(make_bench, make_request) and 0 < sum(cached) < 5 * 96
    second.engine.close()


@pytest.mark.parametrize("harm", ["missing", "empty", "damaged"])
def test_files_that_are_no_blocks_are_a_miss_and_the_live_cache_goes_on(
    on_disk, make_bench, make_request, tmp_path: Path, harm: str
) -> None:
    """While the engine runs, every file is harmed: what memory has is still a hit, the rest is computed (BAT-15)."""
    bench, expected = on_disk(), alone(make_bench, make_request)
    ask(bench, make_request)
    while bench.engine._spill._tier._pending:
        time.sleep(0.01)
    files = list((tmp_path / "kv").iterdir())
    for path in files:
        if harm == "missing":
            path.unlink()
        else:
            path.write_bytes(b"" if harm == "empty" else path.read_bytes()[:-1] + b"\xff\xff")
    last = make_request(list(PROMPTS[-1]), 12)
    assert bench.run(last)[0].ids == expected[-1] and last.num_cached == 96
    first = make_request(list(PROMPTS[0]), 12)
    assert bench.run(first)[0].ids == expected[0] and first.num_cached == 0
    assert len(files) >= 6 and ask(bench, make_request)[0] == expected
    bench.engine.close()


def test_requests_together_in_a_small_pool(on_disk, make_bench, make_request) -> None:
    """Preempted requests, too: their blocks may come back from disk, generated ones as generated ones."""
    bench = on_disk((18, 18), max_running=4)
    requests = [make_request(list(prompt), 70) for prompt in PROMPTS * 3]
    answers = bench.run(*requests)
    expected = [make_bench().run(make_request(list(prompt), 70))[0].ids for prompt in PROMPTS]
    assert [answer.ids for answer in answers] == expected * 3
    assert sum(request.num_preemptions for request in requests) > 0
    bench.engine.close()
