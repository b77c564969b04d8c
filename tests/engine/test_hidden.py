"""Hidden rows instead of tokens: each row once and in order, whatever runs beside, is cut or is preempted."""

from collections.abc import Callable
from typing import Any

import pytest

from twostroke.engine.request import FinishReason, Request
from twostroke.errors import InvalidRequestError

MakeBench = Callable[..., Any]
MakeRequest = Callable[..., Request]


def test_the_last_rows_are_given(make_bench: MakeBench, make_request: MakeRequest) -> None:
    (every,) = make_bench().run(make_request(50, 0, num_hidden=50))
    assert len(set(every.hidden)) == 50
    assert every.finished is not None and every.finished.request.finish_reason is FinishReason.LENGTH
    for count in (1, 7, 49):
        (answer,) = make_bench().run(make_request(50, 0, num_hidden=count))
        assert answer.hidden == every.hidden[-count:]
        assert answer.ids == []


@pytest.mark.parametrize("settings", [{"max_step_tokens": 5}, {"max_chunk_tokens": 7}, {"executor_rows": 3}])
def test_chunks_and_neighbours_change_no_row(
    make_bench: MakeBench, make_request: MakeRequest, settings: dict[str, int]
) -> None:
    (alone,) = make_bench().run(make_request(50, 0, num_hidden=30))
    (text,) = make_bench().run(make_request(20, 40))
    beside = [make_request(20, 40), make_request(50, 0, num_hidden=30), make_request(33, 0, num_hidden=33)]
    found = make_bench(**settings).run(*beside)
    assert found[1].hidden == alone.hidden
    assert found[0].ids == text.ids and found[0].hidden == []
    assert len(found[2].hidden) == 33


def test_after_a_preemption_no_row_comes_twice(make_bench: MakeBench, make_request: MakeRequest) -> None:
    (alone,) = make_bench().run(make_request(60, 0, num_hidden=60))
    bench = make_bench((6, 6), max_step_tokens=3)
    grows, embeds = make_request(12, 70), make_request(60, 0, num_hidden=60)
    found = bench.run(grows, embeds)
    assert embeds.num_preemptions > 0
    assert found[1].hidden == alone.hidden


@pytest.mark.parametrize("fields", [{"num_hidden": 9}, {"num_hidden": -1}, {"num_hidden": 1, "prompt_logprobs": True}])
def test_what_cannot_be_wanted_is_refused(
    make_bench: MakeBench, make_request: MakeRequest, fields: dict[str, int]
) -> None:
    with pytest.raises(InvalidRequestError, match="num_hidden must be"):
        make_bench().run(make_request(8, 0, **fields))
    with pytest.raises(InvalidRequestError, match="num_hidden must be 0 where tokens"):
        make_bench().run(make_request(8, 3, num_hidden=1))
