"""The Python API on a tiny model: one prompt or several, streams, threads, seeds, stop strings, scores."""

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import write_tiny_gguf

from twostroke import LLM, Completion
from twostroke.errors import ChatTemplateError, ContextLengthError, InvalidRequestError
from twostroke.program.phase import Phase

PROMPTS = ["the rain", "a stone in the sea", "x", "inside the house there are those other houses", [5, 6, 7, 8, 9]]
DRAW: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 24, "ignore_eos": True, "logprobs": 2}


def content(completion: Completion) -> tuple[Any, ...]:
    """All of an answer but its times."""
    fields = ("text", "token_ids", "logprobs", "finish_reason", "prompt_tokens", "completion_tokens", "seed")
    return tuple(getattr(completion, name) for name in fields)


def test_pieces_of_a_stream_are_the_text(tiny: LLM) -> None:
    whole = tiny.generate("the rain", seed=1, **DRAW)
    with tiny.generate("the rain", stream=True, seed=1, **DRAW) as stream:
        pieces = list(stream)
    assert len(pieces) > 3
    assert "".join(pieces) == whole.text
    assert content(stream.completion) == content(whole)


def test_a_chat_is_its_rendered_prompt_continued(tiny: LLM) -> None:
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": "what <|im_end|> is"}]
    prompt = tiny.render(messages)
    assert prompt.text.endswith("<|im_start|>assistant\n")
    assert prompt.ids.count(tiny.tokenizer.encode("<|im_end|>", parse_special=True)[0]) == 2  # the user's is text
    assert content(tiny.chat(messages, seed=2, **DRAW)) == content(tiny.generate(prompt.ids, seed=2, **DRAW))


def test_together_in_threads_and_alone_are_the_same(tiny: LLM) -> None:
    alone = [content(tiny.generate(prompt, seed=9, **DRAW)) for prompt in PROMPTS]
    assert [content(done) for done in tiny.generate(PROMPTS, seed=9, **DRAW)] == alone
    assert len({one[0] for one in alone}) == len(alone)

    def job(index: int) -> list[tuple[Any, ...]]:
        order = PROMPTS[index % 3 :] if index % 2 else [PROMPTS[index % 5]]
        return [content(done) for done in tiny.generate(order, seed=9, **DRAW)]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(job, range(24)))
    for index, found in enumerate(results):
        assert found == (alone[index % 3 :] if index % 2 else [alone[index % 5]])


def test_a_reported_seed_repeats_the_answer(tiny: LLM) -> None:
    first, second = (tiny.generate("the rain", **DRAW) for _ in range(2))
    assert content(first) != content(second)
    assert content(tiny.generate("the rain", seed=first.seed, **DRAW)) == content(first)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_as_many_tokens_as_asked_for(tiny: LLM, count: int) -> None:
    done = tiny.generate("the rain", temperature=0, max_tokens=count, ignore_eos=True)
    assert (done.completion_tokens, len(done.token_ids), done.finish_reason) == (count, count, "length")
    assert done.summary.prefill.tokens == done.prompt_tokens == len(tiny.tokenizer.encode("the rain"))
    assert done.summary.decode.tokens == max(0, count - 1)
    assert (done.logprobs, done.cached_tokens) == (None, 0)


def test_a_stop_string_and_what_follows_is_never_seen(tiny: LLM) -> None:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
    text = tiny.generate("the rain", **options).text
    stop = text[11:14]
    kept = text[: text.index(stop)]
    whole = tiny.generate("the rain", stop=stop, **options)
    assert (whole.text, whole.finish_reason) == (kept, "stop")
    assert whole.completion_tokens < 40
    seen = ""
    for piece in tiny.generate("the rain", stream=True, stop=("never there", stop), **options):
        seen += piece
        assert kept.startswith(seen)
    assert seen == kept
    unmatched = text[-2:] + "\ufffe"  # begins like the end of the text: held, then released
    assert tiny.generate("the rain", stop=unmatched, **options).text == text


def test_stops_of_several_prompts_are_each_their_own(tiny: LLM) -> None:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 60, "ignore_eos": True, "stop": ("e", "t")}
    alone = [content(tiny.generate(prompt, **options))[:-1] for prompt in PROMPTS]
    assert {one[3] for one in alone} >= {"stop"}
    assert [content(done)[:-1] for done in tiny.generate(PROMPTS, **options)] == alone


def test_leaving_a_stream_frees_its_blocks(tiny: LLM) -> None:
    cache = tiny.running.engine.cache
    before = cache.num_free
    with tiny.generate("the rain", stream=True, ignore_eos=True) as stream:
        next(iter(stream))
        assert cache.num_free < before
    assert cache.num_free == before
    with pytest.raises(RuntimeError, match="not complete"):
        _ = stream.completion


def test_an_abandoned_stream_ends_before_the_next_step(tiny: LLM) -> None:
    engine = tiny.running.engine
    before = engine.cache.num_free
    stream = tiny.generate("the rain", stream=True, ignore_eos=True)
    next(iter(stream))
    assert engine.num_running == 1
    del stream
    gc.collect()
    with tiny.generate("the rain", stream=True, ignore_eos=True) as other:
        next(iter(other))
        assert engine.num_running == 1
    assert (engine.has_work, engine.cache.num_free) == (False, before)


def test_cancelling_keeps_what_came(tiny: LLM) -> None:
    stream = tiny.generate("the rain", stream=True, ignore_eos=True, seed=4)
    pieces = []
    for piece in stream:
        pieces.append(piece)
        if len(pieces) == 5:
            stream.cancel()
    assert stream.completion.finish_reason == "cancelled"
    assert "".join(pieces) == stream.completion.text
    assert 5 <= stream.completion.completion_tokens < 30


def test_one_bad_prompt_of_several_ends_the_others(tiny: LLM) -> None:
    before = tiny.running.engine.cache.num_free
    with pytest.raises(ContextLengthError, match=r"prompt of 3000 tokens exceeds the context of 2048"):
        tiny.generate(["the rain", [1] * 3000])
    assert (tiny.running.engine.has_work, tiny.running.engine.cache.num_free) == (False, before)


def test_what_is_refused_is_named(tiny: LLM) -> None:
    for options, name in (({"temperature": -1}, "temperature"), ({"top_p": 0}, "top_p"), ({"seed": -1}, "seed")):
        with pytest.raises(InvalidRequestError, match=name):
            tiny.generate("a", **options)
    with pytest.raises(InvalidRequestError, match="prompt is empty"):
        tiny.generate("")
    with pytest.raises(InvalidRequestError, match="one prompt"):
        tiny.generate(["a", "b"], stream=True)  # type: ignore[call-overload]
    with pytest.raises(ContextLengthError, match="2048"):
        tiny.generate("a", max_tokens=2048)


def test_scores_are_those_of_generation(tiny: LLM) -> None:
    done = tiny.generate("the rain", temperature=0, max_tokens=12, ignore_eos=True, logprobs=0)
    ids = [*tiny.tokenizer.encode("the rain"), *done.token_ids]
    assert done.logprobs is not None
    generated = [score.logprob for score in done.logprobs]
    decode = tiny.score(ids, "decode")
    assert (len(decode.logprobs), decode.phase, decode.token_ids) == (len(ids) - 1, Phase.DECODE, tuple(ids))
    prefill = tiny.score(ids)
    assert list(prefill.logprobs) == pytest.approx(list(decode.logprobs), abs=0.05)
    assert prefill.mean_nll == pytest.approx(-sum(prefill.logprobs) / len(prefill.logprobs))
    assert list(decode.logprobs[-12:]) == pytest.approx(generated, abs=0.05)
    with pytest.raises(InvalidRequestError, match="nothing to score"):
        tiny.score([4])
    with pytest.raises(InvalidRequestError, match="phase"):
        tiny.score("the rain", "both")  # type: ignore[arg-type]


def test_totals_are_the_sum_of_requests(tiny: LLM) -> None:
    before = tiny.totals(Phase.DECODE).tokens
    done = tiny.generate(PROMPTS, **DRAW)
    assert tiny.totals(Phase.DECODE).tokens - before == sum(one.completion_tokens - 1 for one in done)


def test_a_model_without_template_completes_texts_and_refuses_chats(tiny_path: Path, tmp_path: Path) -> None:
    base = tmp_path / "base.gguf"
    base.write_bytes(tiny_path.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_nothing_"))
    with LLM(base, threads=1) as llm:
        assert llm.generate("ab", max_tokens=2, ignore_eos=True).completion_tokens == 2
        with pytest.raises(ChatTemplateError, match="--raw"):
            llm.chat([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("template", ["{% for %}", "{% unknown_tag %}", "{{ no_such_function() }}"])
def test_a_template_that_fails_refuses_chats_and_nothing_else(tmp_path: Path, template: str) -> None:
    with LLM(write_tiny_gguf(tmp_path / "m.gguf", template=template), threads=1) as llm:
        with pytest.raises(ChatTemplateError, match=r"the chat template (does not compile|fails)"):
            llm.chat([{"role": "user", "content": "hi"}])
        assert llm.generate("ab", max_tokens=2, ignore_eos=True).completion_tokens == 2


def test_rows_of_padding_have_no_text(tmp_path: Path) -> None:
    """Ids beyond the tokenizer's can only be drawn from rows that pad the embedding table."""
    path = write_tiny_gguf(tmp_path / "m.gguf")
    with LLM(path, threads=1) as llm:
        last = llm.tokenizer.vocab_size - 1
        done = llm.generate("ab", temperature=0, max_tokens=3, logit_bias={last: 1000.0}, ignore_eos=True)
        assert (done.token_ids, done.text) == ((last,) * 3, "")


def test_closing(tiny_path: Path) -> None:
    llm = LLM(tiny_path, threads=1)
    llm.close()
    llm.close()
    with pytest.raises(RuntimeError, match="closed"):
        llm.generate("a")
