"""Drafts change no token, log-probability, end or score of anything; they are made where they pay and nowhere else."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from twostroke.engine.lookup import MOST_DRAFTED, PromptLookup
from twostroke.engine.plan import Chunk, StepPlan
from twostroke.engine.request import FinishReason, Request
from twostroke.engine.speculation import MOST_RUNNING, Speculation
from twostroke.program.phase import Phase

SAMPLINGS = [
    {"num_logprobs": 2},
    {"temperature": 0.8, "seed": 5, "num_logprobs": 0},
    {"frequency_penalty": 0.5, "repetition_penalty": 1.2},
    {"temperature": 1.0, "seed": 6, "presence_penalty": 0.3, "num_logprobs": 1},
]


class Oracle(Speculation):
    """Drafts from the answer that is known; token `wrong_at` of each draft is another one."""

    def __init__(self, answers: dict[int, list[int]], wrong_at: int) -> None:
        super().__init__()
        self.answers, self.wrong_at = answers, wrong_at
        self.drafted = 0

    def drafts(self, request: Request, num_running: int, most: int) -> list[int]:
        room = min(most, request.max_tokens - request.num_generated - 1, MOST_DRAFTED)
        draft = self.answers[request.num_prompt][request.num_generated :][: max(0, room)]
        if len(draft) > self.wrong_at:
            draft[self.wrong_at] ^= 1
        self.drafted += len(draft)
        return draft


@pytest.mark.parametrize("wrong_at", [0, 1, 4, 7])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("together", [1, 3])
def test_drafts_change_nothing(make_bench, make_request, sampling: dict, wrong_at: int, together: int) -> None:
    """Right ones and wrong ones; rows of wrong ones, which stay in blocks, are seen by nobody."""
    lengths, new = [20, 31, 33], [40, 17, 33]
    asked = list(zip(lengths, new, strict=True))[:together]
    plain = [make_bench().run(make_request(n, m, **sampling))[0] for n, m in asked]
    bench = make_bench(prefix_cache=True)
    oracle = Oracle({n: a.ids for (n, _), a in zip(asked, plain, strict=True)}, wrong_at)
    bench.engine._scheduler.speculation = oracle
    answers = bench.run(*(make_request(n, m, **sampling) for n, m in asked))
    for answer, expected in zip(answers, plain, strict=True):
        found = (answer.ids, answer.logprobs, answer.alternatives)
        assert found == (expected.ids, expected.logprobs, expected.alternatives)
        summary = answer.finished.summary
        assert summary.decode.tokens == len(answer.ids) - 1
        assert summary.drafted_tokens >= summary.accepted_tokens >= min(wrong_at, 1) * 5
        assert summary.decode.rows == summary.decode.tokens + summary.drafted_tokens - summary.accepted_tokens
    assert oracle.drafted > 30
    steps = 1 + -(-39 // (wrong_at + 1))
    assert len(bench.executor.batches) <= steps + 3


@pytest.mark.parametrize("at", range(9))
def test_a_stop_id_in_a_draft_ends_the_request_there(make_bench, make_request, at: int) -> None:
    (free,) = make_bench().run(make_request(30, 12))
    bench, request = make_bench(), make_request(30, 12, stop_ids=frozenset(free.ids[at : at + 1]))
    bench.engine._scheduler.speculation = Oracle({30: free.ids}, wrong_at=99)
    (answer,) = bench.run(request)
    assert answer.ids == free.ids[: free.ids.index(free.ids[at]) + 1] and request.finish_reason is FinishReason.STOP
    assert bench.engine.cache.num_free == bench.engine.cache.num_blocks


@pytest.mark.parametrize("num_blocks", [4, 6, 8])
def test_nobody_is_preempted_for_a_draft(make_bench, make_request, num_blocks: int) -> None:
    answers = {n: make_bench().run(make_request(n, 30))[0].ids for n in (20, 30)}
    bench, plain = (make_bench((num_blocks, num_blocks)) for _ in range(2))
    bench.engine._scheduler.speculation = Oracle(answers, wrong_at=5)
    requests, same = ([make_request(n, 30) for n in answers] for _ in range(2))
    assert [answer.ids for answer in bench.run(*requests)] == list(answers.values())
    plain.run(*same)
    assert sum(r.num_preemptions for r in requests) <= sum(r.num_preemptions for r in same)


def test_a_constrained_request_has_no_drafts() -> None:
    class Free:
        is_stopped = False

    request = Request("r", [1, 2, 3] * 9, constraint=Free())
    request.max_tokens = 20
    request.num_tokens, request.num_prompt, request.num_forced = 27, 27, 0
    assert Speculation().drafts(request, 1, 8) == ()


# --- lookup -----------------------------------------------------------------------------------------------------------


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_a_draft_is_what_followed_the_latest_time() -> None:
    tokens = numbers(1, 2, 3, 4, 5, 1, 2, 3, 6, 7, 8, 9, 1, 2, 3)
    assert PromptLookup().draft(tokens) == [6, 7, 8, 9, 1, 2, 3]
    assert PromptLookup().draft(tokens[:8]) == [4, 5, 1, 2, 3, 4, 5]
    for known in (0, 1, 3, 4, 11):
        assert PromptLookup().draft(tokens[:known]) == ()
    assert PromptLookup().draft(numbers(5, 5, 5, 5, 5)) == [5] * 7


@pytest.mark.parametrize("seed", range(20))
def test_a_growing_request_is_indexed_as_if_at_once(seed: int) -> None:
    rng = random.Random(seed)
    tokens, known, lookup = numbers(*(rng.randrange(3) for _ in range(200))), 1, PromptLookup()
    while known < 200:
        expected = []
        for end in range(known - 1, 2, -1):  # the latest earlier place, looked for one by one
            if tokens[end - 3 : end].tolist() == tokens[known - 3 : known].tolist() and known > 3:
                expected = [int(tokens[end + i % (known - end)]) for i in range(MOST_DRAFTED)]
                break
        assert list(lookup.draft(tokens[:known])) == expected
        known += rng.randint(1, 6)


@pytest.mark.parametrize("stride", [1, 2, 5, 8])
def test_drafts_are_judged_by_what_came(stride: int) -> None:
    """Tried or not, and however many tokens come at a time."""
    lookup, text = PromptLookup(), numbers(*[1, 2, 3, 4, 5, 6, 7, 8, 9] * 20)
    for known in range(5, 100, stride):
        lookup.draft(text[:known])
    assert lookup.acceptance == [1.0] * 7
    other, lookup = numbers(*(n for i in range(40) for n in (1, 2, 3, 100 + i))), PromptLookup()
    for known in range(3, 160, stride if stride % 2 else 4):
        lookup.draft(other[:known])
    assert lookup.acceptance == [0.0] * 7 and lookup._num_judged > 5


# --- whether it pays --------------------------------------------------------------------------------------------------


@pytest.fixture
def judged(make_bench, make_request) -> Callable[..., tuple[Speculation, Request]]:
    """A request that repeats itself, drafts of which came true, and a judge that saw what steps of n rows take."""

    def make(acceptance: float = 1.0, **seconds: float) -> tuple[Speculation, Request]:
        request, judge = make_request([1, 2, 3, 4, 5, 6, 7, 8, 9] * 5, 50), Speculation()
        make_bench().engine.prepare(request)
        request.lookup = PromptLookup()
        request.lookup.acceptance = [acceptance ** (i + 1) for i in range(7)]
        for rows, taken in seconds.items():
            see(judge, request, int(rows[4:]), taken)
        return judge, request

    return make


def see(judge: Speculation, request: Request, rows: int, seconds: float) -> None:
    judge.observe(StepPlan((Chunk(45, rows, rows, request, phase=Phase.DECODE),), 1), seconds)


@pytest.mark.parametrize(
    ("acceptance", "seconds", "length"),
    [
        (1.0, {"rows1": 10, "rows8": 12}, 7),
        (1.0, {"rows1": 10}, 7),  # not known: tried
        (1.0, {"rows8": 10}, 0),  # nor what is to be compared with
        (1.0, {"rows1": 10, "rows8": 75}, 7),  # 8 tokens for 7.5 steps
        (1.0, {"rows1": 10, "rows8": 79}, 0),
        (1.0, {"rows1": 10, "rows4": 12, "rows5": 40, "rows8": 45}, 3),
        (0.5, {"rows1": 10, "rows8": 10.5}, 6),
        (0.5, {"rows1": 10, "rows8": 20}, 2),  # 1.75 tokens for 1.29 steps, by interpolation
        (0.5, {"rows1": 10, "rows8": 60}, 0),
        (0.0, {"rows1": 10, "rows8": 10}, 0),
    ],
)
def test_as_many_are_drafted_as_pay(judged, acceptance: float, seconds: dict[str, float], length: int) -> None:
    judge, request = judged(acceptance, **seconds)
    assert list(judge.drafts(request, 1, 100)) == [1, 2, 3, 4, 5, 6, 7][:length]


def test_what_did_not_pay_is_measured_again_much_later(judged) -> None:
    judge, request = judged(1.0, rows1=10, rows8=90)
    waits = 0
    while not judge.drafts(request, 1, 100):
        see(judge, request, 1, 10)
        waits += 1
    assert 400 < waits < 600


def test_many_at_once_draft_nothing(judged) -> None:
    judge, request = judged(rows1=10, rows8=10)
    assert judge.drafts(request, MOST_RUNNING + 1, 100) == ()
    assert Speculation(enabled=False).drafts(request, 1, 100) == ()


def test_no_more_is_drafted_than_there_is_room_for(judged) -> None:
    judge, request = judged(rows1=10, rows8=10)
    request.max_tokens = 4
    assert len(judge.drafts(request, 1, 100)) == 3
    assert len(judge.drafts(request, 1, 2)) == 2
    request.max_tokens = 1
    assert judge.drafts(request, 1, 100) == ()
