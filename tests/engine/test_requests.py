"""What a request may ask for, how it ends, and what it is refused for."""

import math

import pytest

from twostroke.engine.request import FinishReason, State
from twostroke.errors import ContextLengthError, InvalidRequestError, NotEnoughMemoryError
from twostroke.program.phase import Phase


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_exactly_the_new_tokens_asked_for(make_bench, make_request, count: int) -> None:
    bench, request = make_bench(), make_request(33, count)
    (answer,) = bench.run(request)
    assert len(answer.ids) == count == request.num_generated and request.generated_ids == answer.ids
    assert request.finish_reason is FinishReason.LENGTH and request.state is State.FINISHED
    assert sum(len(c.token_ids) for c in bench.executor.batches[0].chunks) == 33
    assert len(bench.executor.batches) == max(1, count)
    assert answer.finished.summary.completion_tokens == count


def test_a_stop_id_ends_the_answer_and_is_its_last_token(make_bench, make_request) -> None:
    (free,) = make_bench().run(make_request(30, 12))
    stop = free.ids[5]
    assert stop not in free.ids[:5]
    stopped = make_request(30, 12, stop_ids=frozenset({stop}))
    (answer,) = make_bench().run(stopped)
    assert answer.ids == free.ids[:6] and stopped.finish_reason is FinishReason.STOP
    ignoring = make_request(30, 12, stop_ids=frozenset({stop}), ignore_eos=True)
    assert make_bench().run(ignoring)[0].ids == free.ids and ignoring.finish_reason is FinishReason.LENGTH


def test_a_stop_id_as_the_last_token_allowed_is_a_stop(make_bench, make_request) -> None:
    (free,) = make_bench().run(make_request(30, 1))
    request = make_request(30, 1, stop_ids=frozenset(free.ids))
    bench = make_bench()
    bench.engine.submit(request)
    token, finished = bench.step()
    assert token.is_stop and finished.request.finish_reason is FinishReason.STOP


def test_without_max_tokens_the_context_is_the_end(make_bench, make_request) -> None:
    request = make_request(30, None)
    (answer,) = make_bench(context=50).run(request)
    assert len(answer.ids) == 20 and request.finish_reason is FinishReason.LENGTH


def test_without_max_tokens_a_small_pool_is_the_end(make_bench, make_request) -> None:
    (answer,) = make_bench((4, 4), context=500).run(make_request(30, None))
    assert len(answer.ids) == 4 * 16 + 1 - 30


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "numbers"),
    [(51, None, ["51", "50"]), (50, None, ["50", "fills"]), (51, 0, ["51", "50"]), (30, 21, ["30", "21", "50", "51"])],
)
def test_beyond_the_context_is_refused_with_the_numbers(make_bench, make_request, prompt, max_tokens, numbers) -> None:
    with pytest.raises(ContextLengthError) as refusal:
        make_bench(context=50).engine.submit(make_request(prompt, max_tokens))
    assert all(number in str(refusal.value) for number in numbers)


def test_the_whole_context_can_be_used(make_bench, make_request) -> None:
    bench = make_bench(context=50)
    answers = bench.run(make_request(30, 20), make_request(50, 0))
    assert [len(answer.ids) for answer in answers] == [20, 0]


def test_what_the_pool_can_never_hold_is_refused_with_the_numbers(make_bench, make_request) -> None:
    bench = make_bench((4, 6))
    with pytest.raises(NotEnoughMemoryError, match="needs 65 tokens of KV cache; the pool has 64"):
        bench.engine.submit(make_request(30, 36))
    assert not bench.engine.has_work
    assert len(bench.run(make_request(30, 35))[0].ids) == 35


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [math.nan, math.inf, -0.1]),
        ("top_p", [0.0, 1.1, math.nan, -1]),
        ("top_k", [-1, 2**31, 2**63]),
        ("min_p", [-0.1, 1.5, math.nan]),
        ("repetition_penalty", [0.0, -1.0, math.nan, math.inf]),
        ("presence_penalty", [math.nan, math.inf]),
        ("frequency_penalty", [math.nan, -math.inf]),
        ("seed", [-1, 2**64]),
        ("choice", [-1, 2**32]),
        ("num_logprobs", [-2, 212]),
        ("logit_bias", [((211, 1.0),), ((-1, 1.0),), ((3, math.nan),)]),
    ],
)
def test_a_field_outside_its_range_is_named(make_bench, make_request, field: str, values: list) -> None:
    bench = make_bench()
    for value in values:
        with pytest.raises(InvalidRequestError, match=field):
            bench.engine.submit(make_request(5, **{field: value}))
    with pytest.raises(InvalidRequestError, match="max_tokens"):
        bench.engine.submit(make_request(5, -1))
    assert not bench.engine.has_work


@pytest.mark.parametrize("prompt", [[], [-1], [3, 211]])
def test_a_prompt_that_is_none_is_named(make_bench, make_request, prompt: list[int]) -> None:
    with pytest.raises(InvalidRequestError, match="prompt"):
        make_bench().engine.submit(make_request(prompt))


def test_extremes_that_are_allowed_run(make_bench, make_request) -> None:
    extremes = {"temperature": 1e6, "top_p": 1e-9, "min_p": 1.0, "top_k": 2**31 - 1, "seed": 2**64 - 1}
    extremes["logit_bias"] = ((210, -1e4),)
    assert len(make_bench().run(make_request(5, 3, **extremes))[0].ids) == 3


def test_logprobs_come_as_asked(make_bench, make_request) -> None:
    bench = make_bench()
    none, own, three = bench.run(*(make_request(9, 4, num_logprobs=n) for n in (-1, 0, 3)))
    assert none.logprobs == [None] * 4 and none.ids == own.ids == three.ids
    assert own.logprobs == three.logprobs and all(logprob <= 0 for logprob in own.logprobs)
    assert own.alternatives == [()] * 4 and [len(a) for a in three.alternatives] == [3] * 4
    assert three.alternatives[0] == ((0, 0.0), (1, -0.5), (2, -1.0))


@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_prompt_scores_do_not_depend_on_chunks_and_leave_the_answer(make_bench, make_request, chunk: int) -> None:
    scored, plain = make_request(40, 5, prompt_logprobs=True), make_request(40, 5)
    bench = make_bench(max_chunk_tokens=chunk)
    answers = bench.run(scored, plain)
    assert answers[0].ids == answers[1].ids
    assert [score.token_id for score in scored.scores] == scored.prompt_ids[1:]
    whole = make_request(40, 0, prompt_logprobs=True)
    make_bench().run(whole)
    assert whole.scores == scored.scores and plain.scores == [] and whole.generated_ids == []
    phases = {c.phase for step in bench.executor.batches for c in step.chunks if c.targets is not None}
    assert phases == {Phase.PREFILL}


@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_forced_rows_are_decode_rows_and_scored(make_bench, make_request, chunk: int) -> None:
    tokens = make_request(40).prompt_ids
    bench, request = make_bench(max_chunk_tokens=chunk), make_request(tokens[:1], 0, forced=tokens[1:])
    bench.run(request)
    assert [score.token_id for score in request.scores] == tokens[1:]
    rows = [(c.phase, len(c.token_ids)) for step in bench.executor.batches for c in step.chunks]
    assert rows[0] == (Phase.PREFILL, 1) and {phase for phase, _ in rows[1:]} == {Phase.DECODE}
    assert max(length for _, length in rows[1:]) == min(chunk, 39)
    whole = make_request(tokens[:1], 0, forced=tokens[1:])
    make_bench().run(whole)
    assert whole.scores == request.scores


def test_forcing_what_was_generated_gives_its_scores_and_continuation(make_bench, make_request) -> None:
    (free,) = make_bench().run(make_request(25, 20, num_logprobs=0, temperature=0.7, seed=3))
    forced = make_request(25, 8, forced=free.ids[:12], num_logprobs=0, temperature=0.7, seed=3)
    (answer,) = make_bench().run(forced)
    assert answer.ids == free.ids[12:] and answer.logprobs == free.logprobs[12:]
    assert [score.logprob for score in forced.scores] == free.logprobs[:12]


def test_a_prompt_of_one_token_has_no_scores(make_bench, make_request) -> None:
    request = make_request([7], 0, prompt_logprobs=True)
    make_bench().run(request)
    assert request.scores == [] and request.finish_reason is FinishReason.LENGTH
