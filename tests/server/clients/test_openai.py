"""The `openai` package, unchanged, against the server: what its users call, and the types it makes of the answers.

Skipped where the package is not installed (`pip install -e '.[clients]'`).
"""

from typing import Any

import pytest
from tests.server.running import RunningServer, running

from twostroke import LLM

openai = pytest.importorskip("openai")

GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "extra_body": {"ignore_eos": True}}
MESSAGES: Any = [{"role": "system", "content": "be"}, {"role": "user", "content": "the rain"}]


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Any:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_a_chat(client: Any, tiny: LLM) -> None:
    done = client.chat.completions.create(messages=MESSAGES, max_completion_tokens=20, **GREEDY)
    expected = tiny.chat(MESSAGES, temperature=0, max_tokens=20, ignore_eos=True)
    assert done.choices[0].message.content == expected.text
    assert done.choices[0].finish_reason == "length"
    assert done.usage.completion_tokens == 20 and done.usage.prompt_tokens == expected.prompt_tokens
    assert done.usage.prompt_tokens_details.cached_tokens >= 0
    assert done.twostroke["decode"]["tokens"] == 19  # ours, beside what the package knows


def test_a_streamed_chat(client: Any, tiny: LLM) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(messages=MESSAGES, max_tokens=20, **options, **GREEDY))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == tiny.chat(MESSAGES, temperature=0, max_tokens=20, ignore_eos=True).text
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage.completion_tokens == 20 and not chunks[-1].choices


def test_the_packages_own_stream_reader(client: Any) -> None:
    text = client.chat.completions.create(messages=MESSAGES, max_tokens=20, **GREEDY).choices[0].message.content
    options = {"max_tokens": 40, "stop": text[-4:]}  # the package makes an error of an answer that is cut
    with client.chat.completions.stream(messages=MESSAGES, **options, **GREEDY) as stream:
        events = [event.type for event in stream]
        done = stream.get_final_completion()
    assert "content.delta" in events and "content.done" in events
    assert done.choices[0].message.content == text[: text.index(text[-4:])]


def test_several_answers_and_logprobs(client: Any) -> None:
    options: dict[str, Any] = {**GREEDY, "temperature": 1, "seed": 5}
    done = client.chat.completions.create(
        messages=MESSAGES, max_tokens=6, n=3, logprobs=True, top_logprobs=2, **options
    )
    assert len({choice.message.content for choice in done.choices}) == 3
    for choice in done.choices:
        assert len(choice.logprobs.content) == 6
        for entry in choice.logprobs.content:
            assert entry.logprob <= 0 and len(entry.top_logprobs) == 2 and isinstance(entry.bytes, list)


def test_completions(client: Any, tiny: LLM) -> None:
    ids = tiny.tokenizer.encode("the rain")
    done = client.completions.create(prompt=ids, max_tokens=4, logprobs=2, echo=True, **GREEDY)
    logprobs = done.choices[0].logprobs
    assert len(logprobs.tokens) == len(ids) + 4 and logprobs.token_logprobs[0] is None
    assert logprobs.token_logprobs[1 : len(ids)] == pytest.approx(tiny.score(ids).logprobs)
    several = client.completions.create(prompt=["the rain", "x"], max_tokens=4, stream=True, **GREEDY)
    assert {chunk.choices[0].index for chunk in several} == {0, 1}


def test_embeddings(client: Any, tiny: LLM) -> None:
    """The package asks for base64 and decodes it, unless told otherwise."""
    expected = tiny.embed(["the rain", "x"]).tolist()
    for extra in ({}, {"encoding_format": "float"}):
        done = client.embeddings.create(model="tiny", input=["the rain", "x"], **extra)
        assert [item.embedding for item in done.data] == [pytest.approx(vector) for vector in expected]


def test_models_and_errors(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["tiny", "other name"]
    assert client.models.retrieve("other name").id == "other name"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-4", messages=MESSAGES)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model="tiny", prompt=[5] * 3000)
    assert long.value.code == "context_length_exceeded" and "3000" in str(long.value)
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="tiny", messages=MESSAGES, extra_body={"temprature": 1})
    assert wrong.value.param == "temprature"


def test_an_error_within_a_stream_is_raised(tiny: LLM) -> None:
    with running(tiny, request_timeout=0.2) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        with tiny.running.loop.paused(), pytest.raises(openai.APIError, match="longer than"):
            list(client.chat.completions.create(messages=MESSAGES, stream=True, **GREEDY))
