"""What counts as a first delta, a token, an end and an error, on answers written by hand."""

import pytest
from tests.bench.streams import DONE, delta, event, finish, record_of, steady, usage

from twostroke.bench.answer_stream import AnswerStream
from twostroke.bench.record import Record
from twostroke.bench.wire import FailedRequestError


def test_every_metric_of_a_steady_answer() -> None:
    record = steady(21, first=0.25, gap=0.01)
    assert record.ttft == pytest.approx(0.25)
    assert record.first_content == pytest.approx(0.25)
    assert record.tpot == pytest.approx(0.01)
    assert record.gaps == pytest.approx([0.01] * 20)
    assert record.e2e == pytest.approx(0.25 + 20 * 0.01 + 0.005)
    assert (record.output_tokens, record.usage.prompt, record.finish_reason) == (21, 50, "length")
    assert record.succeeded


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_the_first_token_but_not_the_first_content(name: str) -> None:
    """The role alone brings no token (BEN-01)."""
    events = [(0.05, delta("", role="assistant")), (0.1, delta("hm", name)), (0.2, delta("hm", name)), (0.3, delta())]
    record = record_of([*events, (0.3, finish()), (0.3, usage(5, 3)), (0.3, DONE)])
    assert (record.ttft, record.first_content) == (pytest.approx(0.1), pytest.approx(0.3))
    assert record.tpot == pytest.approx(0.1)


@pytest.mark.parametrize("field", [{"tool_calls": [{"index": 0}]}, {"refusal": "no"}, {"function_call": {"name": "f"}}])
def test_any_output_is_a_delta(field: dict[str, object]) -> None:
    events = [(0.1, {"choices": [{"delta": field}]}), (0.2, finish("tool_calls")), (0.2, usage(5, 9)), (0.2, DONE)]
    record = record_of(events)
    assert (record.ttft, record.first_content) == (pytest.approx(0.1), None)


def test_several_tokens_a_delta() -> None:
    """TPOT takes the tokens from usage: 10 deltas of 3 tokens are 30 tokens, not 10 (BEN-03)."""
    events = [(0.5 + 0.03 * index, delta("one two three")) for index in range(10)]
    record = record_of([*events, (0.77, finish()), (0.77, usage(5, 30)), (0.77, DONE)])
    assert record.tpot == pytest.approx(0.27 / 29)
    assert record.gaps == pytest.approx([0.03] * 9)


def test_whitespace_is_counted_by_the_server() -> None:
    """Case BEN-07."""
    events = [(0.1 + 0.01 * index, delta(" ")) for index in range(15)]
    record = record_of([*events, (0.3, finish()), (0.3, usage(5, 15)), (0.3, DONE)])
    assert (record.output_tokens, record.tpot) == (15, pytest.approx(0.01))


def test_hidden_reasoning_is_counted_but_no_time_per_token() -> None:
    """100 tokens of which 80 are not shown: the 20 that come in 0.19 s take 10 ms each, not 1.9 (BEN-10)."""
    events = [(2.0 + 0.01 * index, delta()) for index in range(20)]
    hidden = usage(5, 100, completion_tokens_details={"reasoning_tokens": 80})
    record = record_of([*events, (2.2, finish()), (2.2, hidden), (2.2, DONE)])
    assert (record.output_tokens, record.stream_tokens) == (100, 20)
    assert record.tpot == pytest.approx(0.01)


def test_reasoning_that_is_shown_is_among_the_tokens_of_the_stream() -> None:
    events = [(1.0 + 0.01 * index, delta("x", "reasoning_content")) for index in range(80)]
    events += [(1.8 + 0.01 * index, delta()) for index in range(20)]
    shown = usage(5, 100, completion_tokens_details={"reasoning_tokens": 80})
    record = record_of([*events, (2.0, finish()), (2.0, shown), (2.0, DONE)])
    assert (record.stream_tokens, record.tpot) == (100, pytest.approx(0.01))


def test_usage_on_the_last_chunk_and_null_before() -> None:
    """Case BEN-12."""
    record = steady(3)
    assert (record.usage.prompt, record.usage.completion) == (50, 3)


def test_without_usage_deltas_are_counted() -> None:
    record = record_of([(0.1, delta()), (0.2, delta()), (0.2, finish()), (0.2, DONE)])
    assert (record.output_tokens, record.usage.completion, record.tpot) == (2, None, pytest.approx(0.1))


@pytest.mark.parametrize(
    "last",
    [
        usage(50, 1, prompt_tokens_details={"cached_tokens": 32}),
        usage(50, 1, prompt_cache_hit_tokens=32),
        {"choices": [], "timings": {"cache_n": 32}},
    ],
)
def test_cached_tokens_in_every_dialect(last: object) -> None:
    assert record_of([(0.1, delta()), (0.1, finish()), (0.1, last), (0.1, DONE)]).usage.cached == 32


def test_completions_have_texts() -> None:
    events = [(0.1 * index, {"choices": [{"text": "a", "finish_reason": None}]}) for index in (1, 2)]
    record = record_of([*events, (0.2, {"choices": [{"text": "", "finish_reason": "stop"}]}), (0.2, DONE)])
    assert (record.ttft, record.first_content, len(record.delta_times)) == (pytest.approx(0.1), pytest.approx(0.1), 2)


def test_answers_of_one_token_or_one_piece_have_no_tpot() -> None:
    assert steady(1).tpot is None
    assert record_of([(0.3, delta("all of it")), (0.3, finish()), (0.3, usage(5, 40)), (0.3, DONE)]).tpot is None


def test_events_cut_anywhere_and_every_line_end() -> None:
    record = Record(0, 0, 0)
    stream = AnswerStream(record, keep_text=True)
    stream.sent(0.0)
    stream.begin(200, "text/event-stream", 0.0)
    data = b": comment\r\n\r\n" + event(delta("é")).replace(b"\n", b"\r\n") + event(delta("b")) + b"data:[DONE]\n\n"
    done = [stream.feed(data[index : index + 1], 0.1) for index in range(len(data))]
    assert done == [False] * (len(data) - 1) + [True]
    assert "".join(stream.texts) == "éb"


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([(0.1, b'{"choices": [{"del')], "malformed chunk"),
        ([(0.1, b"[1, 2]")], "malformed chunk"),
        ([(0.1, b"[" * 100_000)], "malformed chunk"),
        ([(0.1, delta()), (0.2, {"error": {"message": "engine fell over"}})], "error in the stream"),
        ([(0.1, delta()), (0.2, delta())], "closed early"),
        ([(0.1, finish("stop")), (0.1, usage(5, 0)), (0.1, DONE)], "no output"),
    ],
)
def test_errors_by_kind(events: list[tuple[float, object]], kind: str) -> None:
    with pytest.raises(FailedRequestError) as failure:
        record_of(events)
    assert failure.value.kind == kind


@pytest.mark.parametrize(
    ("status", "content_type", "kind", "detail"),
    [
        (429, "application/json", "HTTP 429", "slow down"),
        (500, "text/plain", "HTTP 500", "slow down"),
        (200, "application/json", "not a stream", "slow down"),
    ],
)
def test_answers_that_are_no_stream(status: int, content_type: str, kind: str, detail: str) -> None:
    stream = AnswerStream(Record(0, 0, 0))
    stream.begin(status, content_type, 0.0)
    is_json = content_type == "application/json"
    stream.feed(b'{"error": {"message": "slow\\n down"}}' if is_json else b"slow  down", 0.0)
    with pytest.raises(FailedRequestError) as failure:
        stream.close(0.0)
    assert (failure.value.kind, failure.value.detail) == (kind, detail)


def test_a_finish_reason_is_an_end_without_done() -> None:
    assert record_of([(0.1, delta()), (0.25, finish())]).e2e == pytest.approx(0.25)
