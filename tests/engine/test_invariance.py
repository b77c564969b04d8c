"""Invariant 1, the engine's part: text depends on the request alone, not on batch, chunks, preemption or neighbours."""

import pytest

from twostroke.program.phase import Phase

LENGTHS = [1 + (37 * i) % 150 for i in range(64)]
NEW = [1 + (11 * i) % 40 for i in range(64)]


def requests(make_request):
    """64 requests: greedy, seeded, and with penalties (whose draw sees the history)."""
    kinds = [{}, {"temperature": 0.8, "seed": 5}, {"frequency_penalty": 0.5}]
    return [
        make_request(length, new, num_logprobs=0, **kinds[i % 3])
        for i, (length, new) in enumerate(zip(LENGTHS, NEW, strict=True))
    ]


@pytest.fixture(scope="module")
def alone():
    return {}


def reference(alone, make_bench, make_request):
    """What each request says when it has the engine to itself and its prompt is one chunk."""
    if not alone:
        for i, request in enumerate(requests(make_request)):
            (answer,) = make_bench().run(request)
            alone[i] = (answer.ids, answer.logprobs)
    return alone


@pytest.mark.parametrize("chunk", [16, 100, 512])
@pytest.mark.parametrize("batch", [1, 3, 8, 16])
def test_batch_and_chunks_do_not_change_text(alone, make_bench, make_request, batch: int, chunk: int) -> None:
    expected = reference(alone, make_bench, make_request)
    bench = make_bench(max_running=batch, max_chunk_tokens=chunk)
    answers = bench.run(*requests(make_request))
    assert {i: (answer.ids, answer.logprobs) for i, answer in enumerate(answers)} == expected
    most = max(len(step.chunks) for step in bench.executor.batches)
    assert most == batch


@pytest.mark.parametrize("num_blocks", [12, 14, 17])
@pytest.mark.parametrize("rows", [20, 512])
def test_preemption_does_not_change_text(alone, make_bench, make_request, num_blocks: int, rows: int) -> None:
    """Case BAT-11."""
    expected = reference(alone, make_bench, make_request)
    bench = make_bench((num_blocks, num_blocks + 1), max_running=16, max_step_tokens=rows)
    all_requests = requests(make_request)
    answers = bench.run(*all_requests)
    assert {i: (answer.ids, answer.logprobs) for i, answer in enumerate(answers)} == expected
    assert sum(request.num_preemptions for request in all_requests) >= (3 if num_blocks == 17 else 4)
    assert [pool.num_free for pool in bench.engine.cache.pools] == [num_blocks, num_blocks + 1]


def test_recomputed_generated_rows_are_one_decode_chunk(make_bench, make_request) -> None:
    bench = make_bench((5, 5))
    old, young = make_request(20, 40), make_request(25, 20)
    bench.run(old, young)
    assert young.num_preemptions == 1
    chunks = [c for step in bench.executor.batches for c in step.chunks if c.num_prompt_tokens == 25]
    again = [i for i, c in enumerate(chunks) if c.start == 0][1]
    prompt, generated = chunks[again], chunks[again + 1]
    assert (prompt.phase, len(prompt.token_ids), prompt.num_outputs) == (Phase.PREFILL, 25, 0)
    assert generated.phase is Phase.DECODE and len(generated.token_ids) > 1 and generated.num_outputs == 1
    assert generated.output_index == len(generated.token_ids)


@pytest.mark.parametrize("change", ["phase", "prompt", "seed", "choice"])
def test_what_must_change_text_does(make_bench, make_request, change: str) -> None:
    """Controls: the fake executor would show each of the mistakes the other tests look for."""
    prompt = make_request(40).prompt_ids
    sampling = {"temperature": 1.0, "seed": 1}
    (answer,) = make_bench().run(make_request(list(prompt), **sampling))
    if change == "phase":
        other = make_request(list(prompt[:20]), forced=list(prompt[20:]), **sampling)
    elif change == "prompt":
        other = make_request([prompt[0] ^ 1, *prompt[1:]], **sampling)
    else:
        other = make_request(list(prompt), **{**sampling, change: 2})
    assert make_bench().run(other)[0].ids != answer.ids
