"""The prefix cache in the engine: what is reused, what never is, and that it changes no bit of any answer."""

import logging
import random

import pytest

from twostroke.engine.request import FinishReason
from twostroke.program.phase import Phase

SHARED = list(range(100))  # 6 full blocks and 4 tokens


def rows(bench, phase: Phase) -> int:
    """Rows of the phase in all steps so far."""
    return sum(len(c.token_ids) for step in bench.executor.batches for c in step.chunks if c.phase is phase)


@pytest.fixture
def cached(make_bench):
    def make(*args, **settings):
        return make_bench(*args, prefix_cache=True, **settings)

    return make


def test_a_prompt_that_begins_alike_computes_the_rest_alone(cached, make_bench, make_request) -> None:
    bench = cached()
    first, second = make_request([*SHARED, 7, 7], 5), make_request([*SHARED, 9, 8, 7], 5)
    bench.run(first)
    assert rows(bench, Phase.PREFILL) == 102
    (answer,) = bench.run(second)
    assert rows(bench, Phase.PREFILL) == 102 + 103 - 96
    assert (first.num_cached, second.num_cached) == (0, 96)
    summary = answer.finished.summary
    assert (summary.cached_tokens, summary.prompt_tokens, summary.prefill.tokens) == (96, 103, 7)
    assert answer.ids == make_bench().run(make_request([*SHARED, 9, 8, 7], 5))[0].ids


@pytest.mark.parametrize(("length", "reused"), [(16, 0), (17, 16), (32, 16), (33, 32), (95, 80), (96, 80), (97, 96)])
def test_the_last_prompt_token_is_always_computed(cached, make_bench, make_request, length: int, reused: int) -> None:
    bench = cached()
    bench.run(make_request(SHARED[:length], 3))
    again = make_request(SHARED[:length], 3)
    (answer,) = bench.run(again)
    assert again.num_cached == reused
    assert answer.ids == make_bench().run(make_request(SHARED[:length], 3))[0].ids


def test_generated_rows_begin_no_prompt_unless_asked_for(cached, make_bench, make_request) -> None:
    """The next turn of a chat: prompt, answer and a question. The fake's text shows each row's phase."""
    first = make_request(SHARED[:40], 41)
    answer = make_bench().run(first)[0].ids
    turn = [*SHARED[:40], *answer, 1, 2, 3]
    (expected,) = make_bench().run(make_request(turn, 9))
    for reuse, num_cached in ((False, 32), (True, 80)):
        bench = cached(reuse_generated=reuse)
        second = make_request(turn, 9)
        bench.run(make_request(SHARED[:40], 41))
        (found,) = bench.run(second)
        assert second.num_cached == num_cached
        assert (found.ids == expected.ids) is not reuse


def test_forced_rows_are_generated_rows(cached, make_request) -> None:
    bench = cached()
    bench.run(make_request(SHARED[:32], 0, forced=SHARED[32:]))
    prompt, forced = make_request(SHARED, 2), make_request(SHARED[:32], 2, forced=[*SHARED[32:], 1, 2])
    bench.run(prompt)
    assert prompt.num_cached == 32
    bench.run(forced)  # whose scores are wanted from row 32 on
    assert forced.num_cached == 16


@pytest.mark.parametrize("other", ["salt", "token"])
def test_what_differs_is_not_shared(cached, make_request, other: str) -> None:
    bench = cached()
    bench.run(make_request(SHARED, 2))
    request = make_request([5, *SHARED[1:]] if other == "token" else list(SHARED), 2)
    if other == "salt":
        request.cache_salt = "tenant b"
    bench.run(request)
    assert request.num_cached == 0


@pytest.mark.parametrize(
    ("params", "reused"), [({"prompt_logprobs": True}, 0), ({"num_hidden": 60, "max_tokens": 0}, 32), ({}, 96)]
)
def test_rows_whose_outputs_are_wanted_are_computed(cached, make_bench, make_request, params, reused: int) -> None:
    bench = cached()
    bench.run(make_request(SHARED, 2))
    request, alone = (make_request(list(SHARED), **params) for _ in range(2))
    (answer,) = bench.run(request)
    (expected,) = make_bench().run(alone)
    assert request.num_cached == reused
    assert (answer.ids, answer.hidden, request.scores) == (expected.ids, expected.hidden, alone.scores)


def test_prompts_that_run_together_end_in_one_copy(cached, make_request) -> None:
    """Computed at once, nobody could reuse; as blocks become known as equal, one stays."""
    bench = cached()
    for token in range(3):
        bench.engine.submit(make_request([*SHARED[:33], *[token] * 66], 20))  # 2 of 6 full blocks alike
    bench.step()
    assert rows(bench, Phase.PREFILL) == 3 * 99
    assert bench.engine.cache.pools[0].num_free == 256 - 2 - 3 * 5
    bench.run()


def test_equal_prompts_at_once_are_computed_once(cached, make_bench, make_request) -> None:
    """As the choices of one prompt are: the others wait for the first, chunk by chunk, and lose no step by it."""
    bench = cached(max_chunk_tokens=32)
    requests = [make_request(SHARED, 20, temperature=1.0, seed=1, choice=i) for i in range(4)]
    answers = bench.run(*requests)
    assert rows(bench, Phase.PREFILL) == 100 + 3 * 4 and [r.num_cached for r in requests] == [0, 96, 96, 96]
    for choice, answer in enumerate(answers):
        alone = make_request(SHARED, 20, temperature=1.0, seed=1, choice=choice)
        assert answer.ids == make_bench().run(alone)[0].ids


def test_who_waits_for_a_common_beginning_is_not_lost_with_it(cached, make_request) -> None:
    """The one that computes it is cancelled, or fails."""
    for end in ("cancel", "fail"):
        bench = cached(max_chunk_tokens=32)
        first, second = make_request(SHARED, 5), make_request(SHARED, 5)
        bench.engine.submit(first)
        bench.engine.submit(second)
        bench.step()
        if end == "cancel":
            bench.engine.cancel(first)
        else:
            bench.executor.fails_at = len(bench.executor.batches)
        bench.run()
        assert first.finish_reason in (FinishReason.CANCELLED, FinishReason.ERROR)
        assert second.finish_reason is FinishReason.LENGTH and second.num_cached == 32


def test_the_oldest_go_first_and_the_end_of_a_chain_before_its_beginning(cached, make_request) -> None:
    bench = cached((14, 14))
    for first_token in (1, 2):
        bench.run(make_request([first_token, *SHARED[1:]], 1))  # 6 blocks stay of each
    assert bench.engine.cache.num_free == 14 and bench.engine.cache.pools[0].num_free == 2
    bench.run(make_request([3] * 79, 1))  # takes 5, leaves 4 full ones: three of the first chain go
    old, new = make_request([1, *SHARED[1:]], 1), make_request([2, *SHARED[1:]], 1)
    bench.run(new)
    assert new.num_cached == 96
    bench.run(old)
    assert old.num_cached == 48


def test_running_requests_need_no_block_that_waits_for_a_prompt(cached, make_bench, make_request) -> None:
    """Idle blocks are free ones: admission and growth see them so, and a full pool runs like an empty one."""
    bench = cached((8, 9))
    for i in range(6):
        bench.run(make_request(20 + 15 * i, 10))
    big = make_request([9] * 100, 29)
    (answer,) = bench.run(big)
    assert not big.num_preemptions and answer.ids == make_bench().run(make_request([9] * 100, 29))[0].ids


def test_a_preempted_request_takes_up_what_is_left_of_it(cached, make_bench, make_request) -> None:
    """Generated blocks, too: they are its own, computed as generated rows."""
    bench = cached((7, 7))
    old, young = make_request(20, 50), make_request(25, 40)
    answers = bench.run(old, young)
    assert young.num_preemptions == 1 and young.num_cached == 0
    assert [a.ids for a in answers] == [make_bench().run(make_request(n, m))[0].ids for n, m in ((20, 50), (25, 40))]
    uncached = make_bench((7, 7))
    uncached.run(make_request(20, 50), make_request(25, 40))
    assert rows(bench, Phase.PREFILL) + rows(bench, Phase.DECODE) < rows(uncached, Phase.PREFILL) + rows(
        uncached, Phase.DECODE
    )


def test_the_reason_of_a_miss_can_be_read(cached, make_request, caplog: pytest.LogCaptureFixture) -> None:
    bench = cached((14, 14))
    with caplog.at_level(logging.DEBUG, "twostroke.engine.prefill"):
        bench.run(make_request(SHARED, 1))
        bench.run(make_request(SHARED, 1))
        bench.run(make_request([4] * 200, 1))
        bench.run(make_request(SHARED, 1))
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "0 of 7 blocks cached; block 0 has not been seen",
        "6 of 7 blocks cached; the rest is computed for its outputs",
        "0 of 13 blocks cached; block 0 has not been seen",
        "1 of 7 blocks cached; block 1 was evicted",
    ]


@pytest.mark.parametrize("seed", range(6))
def test_random_soak_of_shared_prompts(cached, make_bench, make_request, seed: int) -> None:
    """Prompts of few beginnings, small pools, cancellations, failures: blocks are counted after every step."""
    rng = random.Random(seed)
    pool = rng.randint(12, 40)
    bench = cached((pool, pool + 3), max_step_tokens=rng.choice([17, 64]), max_chunk_tokens=16, max_running=6)
    stems = [[start, *SHARED[1 : rng.randint(10, 90)]] for start in range(3)]
    asked = []
    for step in range(400):
        if rng.random() < 0.25:
            prompt = [*rng.choice(stems), *(rng.randrange(211) for _ in range(rng.randint(0, 30)))]
            asked.append(make_request(prompt, rng.randint(0, 60), prompt_logprobs=rng.random() < 0.1))
            bench.engine.submit(asked[-1])
        if asked and rng.random() < 0.1:
            bench.engine.cancel(rng.choice(asked))
            bench.check_blocks()
        if step == 200:
            bench.executor.fails_at = len(bench.executor.batches)
        bench.step()
    bench.run()
    cache = bench.engine.cache
    assert cache.num_free == pool and cache.prefix.num_idle == len(cache.prefix) > 0
    assert sum(request.num_cached for request in asked) > 500
    kept = [request for request in asked if request.finish_reason is FinishReason.LENGTH]
    for request in rng.sample(kept, 20):
        again = make_request(list(request.prompt_ids), request.params.max_tokens)
        assert make_bench().run(again)[0].ids == bench.answers[request].ids


def test_a_prompt_of_tens_of_thousands_of_tokens(make_bench, make_request) -> None:
    """Not empty, and the same without the cache, at first and from it (BAT-09)."""
    (expected,) = make_bench((2048, 2048), context=32_768).run(make_request(30_001, 6))
    bench = make_bench((2048, 2048), context=32_768, prefix_cache=True)
    for cached in (0, 30_000):
        request = make_request(30_001, 6)
        (answer,) = bench.run(request)
        assert len(answer.ids) == 6 and answer.ids == expected.ids and request.num_cached == cached
