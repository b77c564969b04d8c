"""Constrained requests: which tokens may come, when they end, and that nothing else changes them."""

import numpy as np
import pytest

from twostroke.engine.request import FinishReason
from twostroke.errors import ConstraintError, InvalidRequestError


class Countdown:
    """Token i must be congruent to i modulo 7, for `length` tokens. Bits beyond the vocabulary are set, too."""

    def __init__(self, length: int = 1000, *, fails_to: str = "", at: int = -1) -> None:
        self.length, self.accepted = length, []
        self.fails_to, self.at = fails_to, at

    @property
    def is_stopped(self) -> bool:
        return len(self.accepted) >= self.length

    def fill_mask(self, mask: np.ndarray) -> None:
        assert not mask.any()
        if self.fails_to == "fill" and self.at == len(self.accepted):
            raise OSError("fill")
        if self.fails_to == "allow" and self.at == len(self.accepted):
            mask[-1] = 1 << 31
            return
        for token in range(len(self.accepted) % 7, 32 * len(mask), 7):
            mask[token // 32] |= np.uint32(1 << token % 32)

    def accept(self, token_id: int) -> None:
        if self.fails_to == "accept" and self.at == len(self.accepted):
            raise OSError("accept")
        self.accepted.append(token_id)


def test_each_token_is_among_those_allowed(make_bench, make_request) -> None:
    constraint = Countdown()
    request = make_request(40, 30, constraint=constraint)
    (answer,) = make_bench().run(request)
    assert [token % 7 for token in answer.ids] == [i % 7 for i in range(30)]
    assert constraint.accepted == answer.ids and request.finish_reason is FinishReason.LENGTH
    (free,) = make_bench().run(make_request(40, 30))
    assert free.ids != answer.ids


@pytest.mark.parametrize("length", [0, 1, 9])
def test_a_complete_constraint_ends_the_request(make_bench, make_request, length: int) -> None:
    request = make_request(40, 30, constraint=Countdown(length))
    bench = make_bench()
    (answer,) = bench.run(request)
    assert len(answer.ids) == length and request.finish_reason is FinishReason.STOP and request.error is None
    assert bench.engine.cache.num_free == bench.engine.cache.num_blocks


def test_a_stop_id_ends_it_first_and_is_not_accepted(make_bench, make_request) -> None:
    (answer,) = make_bench().run(make_request(40, 30, constraint=Countdown()))
    constraint = Countdown()
    request = make_request(40, 30, constraint=constraint, stop_ids=frozenset(answer.ids[4:5]))
    assert make_bench().run(request)[0].ids == answer.ids[:5]
    assert constraint.accepted == answer.ids[:4] and request.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("at", [0, 5])
@pytest.mark.parametrize(("fails_to", "error"), [("fill", OSError), ("accept", OSError), ("allow", ConstraintError)])
def test_what_it_raises_ends_its_own_request_alone(make_bench, make_request, fails_to: str, error, at: int) -> None:
    (expected,) = make_bench().run(make_request(41, 20))
    bench = make_bench()
    failing, other = make_request(40, 30, constraint=Countdown(fails_to=fails_to, at=at)), make_request(41, 20)
    bench.run(failing, other)
    assert failing.finish_reason is FinishReason.ERROR and type(failing.error) is error
    assert len(bench.answers[failing].ids) == at + (fails_to == "accept")
    assert bench.answers[other].ids == expected.ids and other.finish_reason is FinishReason.LENGTH
    assert bench.engine.cache.num_free == bench.engine.cache.num_blocks


@pytest.mark.parametrize("rows", [16, 512])
def test_preemption_and_chunks_do_not_change_it(make_bench, make_request, rows: int) -> None:
    """Preempted requests compute their rows again; the constraint hears of each token once all the same."""
    lengths = [20 + 7 * i for i in range(8)]
    alone = [make_bench().run(make_request(n, 30, constraint=Countdown(25)))[0].ids for n in lengths]
    requests = [make_request(n, 30, constraint=Countdown(25)) for n in lengths]
    bench = make_bench((9, 9), max_chunk_tokens=rows)
    assert [answer.ids for answer in bench.run(*requests)] == alone
    assert sum(request.num_preemptions for request in requests) > 0
    assert [request.constraint.accepted for request in requests] == alone


def test_scores_of_the_prompt_come_whatever_it_allows(make_bench, make_request) -> None:
    request = make_request(40, 0, constraint=Countdown(0), prompt_logprobs=True)
    make_bench().run(request)
    assert len(request.scores) == 39 and request.finish_reason is FinishReason.LENGTH
    request = make_request(40, 5, constraint=Countdown(), prompt_logprobs=True)
    (answer,) = make_bench().run(request)
    assert len(request.scores) == 39 and [token % 7 for token in answer.ids] == [0, 1, 2, 3, 4]


def test_forced_tokens_and_hidden_rows_take_none(make_bench, make_request) -> None:
    for request in (
        make_request(9, 3, forced=[1], constraint=Countdown()),
        make_request(9, 0, num_hidden=1, constraint=Countdown()),
    ):
        with pytest.raises(InvalidRequestError, match="constraint must be None"):
            make_bench().engine.submit(request)
