"""A model whose logits are not finite: its request ends at once with a named error, its neighbours go on."""

import numpy as np
import pytest
from tests.native.in_memory import MemorySource, floats

from twostroke.engine.config import EngineConfig
from twostroke.engine.engine import Engine
from twostroke.engine.loop import EngineLoop
from twostroke.engine.request import GenerationParams, Request
from twostroke.errors import ModelOutputError
from twostroke.native.batch import Sampling
from twostroke.native.executor import ExecutorConfig, NativeExecutor
from twostroke.program.builder import Builder

BAD, VOCAB, DIM = 7, 16, 8


def engine() -> Engine:
    """Random numbers, but for token 7, whose embedding is NaN."""
    b = Builder()
    b.output("logits", b.linear(b.output_rows(b.embed("table", VOCAB, DIM)), "head", VOCAB))
    rng = np.random.default_rng(0)
    table = rng.standard_normal((VOCAB, DIM))
    head = rng.standard_normal((VOCAB, DIM))
    table[BAD] = np.nan
    source = MemorySource({"table.weight": floats(table), "head.weight": floats(head)})
    executor = NativeExecutor(b.build(), source, ExecutorConfig(1, (), 64))
    return Engine(executor, EngineConfig(VOCAB, 64))


@pytest.mark.parametrize(
    "params",
    [
        GenerationParams(max_tokens=1),
        GenerationParams(max_tokens=5),
        GenerationParams(max_tokens=0, prompt_logprobs=True),
    ],
)
def test_the_request_ends_with_the_error(params: GenerationParams) -> None:
    running = engine()
    bad, good = Request("bad", [1, BAD], params), Request("good", [1, 2], GenerationParams(max_tokens=1))
    running.submit(good)
    running.submit(bad)
    while running.has_work:
        running.step()
    assert isinstance(bad.error, ModelOutputError)
    assert bad.generated_ids == []
    assert good.error is None
    assert len(good.generated_ids) == 1


@pytest.mark.parametrize("sampling", [Sampling(logit_bias=((3, 1e39),)), Sampling(repetition_penalty=1e-300)])
def test_what_the_request_asked_for_is_named_first(sampling: Sampling) -> None:
    running = engine()
    request = Request("r", [1, 2], GenerationParams(max_tokens=4, sampling=sampling))
    running.submit(request)
    while running.has_work:
        running.step()
    assert isinstance(request.error, ModelOutputError)
    assert str(request.error).startswith("logits are not finite with this request's logit_bias or penalties")


def test_it_is_raised_where_the_answer_is_read() -> None:
    loop = EngineLoop(engine())
    with (
        pytest.raises(ModelOutputError, match="not finite"),
        loop.submit(Request("bad", [BAD], GenerationParams())) as s,
    ):
        list(s)
