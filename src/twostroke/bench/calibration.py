"""Calibration: what a server takes, and how many words make a token. Owns the few requests sent before a load test.

Prompt tokens are counted by a tokenizer that was named, else by the server's /tokenize, else from the usage it states
for two prompts, else by assumption; the result says which.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from twostroke.bench.answer_stream import AnswerStream
from twostroke.bench.client import Client
from twostroke.bench.conversation import Scale
from twostroke.bench.endpoint import Endpoint
from twostroke.bench.record import Record
from twostroke.bench.wire import FailedRequestError
from twostroke.bench.words import WORDS
from twostroke.errors import EndpointError

Counter = Callable[[str], Awaitable[int]]

_ASSUMED_TOKENS_PER_WORD = 1.1
_PROBE_WORDS = (32, 160)
_GROUP = 24
_REFUSALS = (400, 422)


class Calibration:
    """Settles an endpoint's model, dialect and scale. Raises EndpointError where the server cannot be used at all."""

    def __init__(self, client: Client, endpoint: Endpoint) -> None:
        self._client = client
        self.endpoint = endpoint
        self.notes: list[str] = []

    @property
    def _address(self) -> str:
        return self._client.origin + self.endpoint.path

    async def settle(self, counter: Counter | None, counter_name: str) -> Scale:
        """Finds the model, the dialect and the scale; `endpoint` and `notes` then say what was found."""
        try:
            if self.endpoint.model is None:
                self.endpoint = replace(self.endpoint, model=await self._first_model())
            probe = await self._settle_dialect()
        except FailedRequestError as error:
            raise EndpointError(f"{self._address}: {error}") from None
        if counter is None:
            counter, counter_name = await self._server_counter(), "the server's /tokenize"
        if counter is not None:
            return await self._exact(counter, counter_name, probe)
        return await self._from_usage(probe)

    async def _first_model(self) -> str | None:
        try:
            models = await self._client.get_json(f"{self.endpoint.base}/models")
            return str(models["data"][0]["id"])
        except FailedRequestError as error:
            if error.kind == "cannot connect":
                raise
        except (TypeError, KeyError, IndexError):
            pass
        self.notes.append("the server lists no model: requests name none in particular; see --model")
        return None

    async def _settle_dialect(self) -> Record:
        """The first form of a request that is answered, and its record. Raises FailedRequestError."""
        refusal: FailedRequestError | None = None
        for dialect in self.endpoint.dialect.fallbacks():
            endpoint = replace(self.endpoint, dialect=dialect)
            try:
                record = await self._probe(endpoint, _PROBE_WORDS[0])
            except FailedRequestError as error:
                if error.kind not in [f"HTTP {status}" for status in _REFUSALS]:
                    raise
                refusal = refusal or error
                continue
            if self.endpoint.dialect.ignore_eos and not dialect.ignore_eos:
                self.notes.append("the server refuses ignore_eos: answers may end early")
            self.endpoint = endpoint
            return record
        raise refusal or FailedRequestError("refused")

    async def _probe(self, endpoint: Endpoint, num_words: int) -> Record:
        record = Record(stage=-1, conversation=-1, turn=0, is_warmup=True)
        stream = AnswerStream(record)
        content = " ".join(WORDS[:num_words])
        await self._client.post(endpoint.path, endpoint.body([{"role": "user", "content": content}], 2), stream)
        try:
            stream.close(0.0)
        except FailedRequestError as error:
            if error.kind != "no output":
                raise
        return record

    async def _server_counter(self) -> Counter | None:
        """The server's own /tokenize in one of its forms: llama-server's `content`, vLLM's `prompt`."""
        for form in ("content", "prompt"):
            counter = _TokenizeCall(self._client, self.endpoint, form)
            try:
                if await counter("about above") > 0:
                    return counter
            except FailedRequestError:
                continue
        return None

    async def _exact(self, counter: Counter, name: str, probe: Record) -> Scale:
        try:
            words = await _single_token_words(counter)
            content = await counter(" ".join(WORDS[: _PROBE_WORDS[0]]))
        except FailedRequestError as error:
            raise EndpointError(f"{name}: {error}") from None
        if len(words) < 100:
            raise EndpointError(f"{name}: only {len(words)} of {len(WORDS)} common words are one token; leave it out")
        overhead = 0 if probe.usage.prompt is None else max(0, probe.usage.prompt - content)
        return Scale(words, 1.0, overhead, name)

    async def _from_usage(self, probe: Record) -> Scale:
        few, many = _PROBE_WORDS
        try:
            second = await self._probe(self.endpoint, many)
        except FailedRequestError as error:
            raise EndpointError(f"{self._address}: {error}") from None
        if probe.usage.prompt is None or second.usage.prompt is None or second.usage.prompt <= probe.usage.prompt:
            return Scale(WORDS, _ASSUMED_TOKENS_PER_WORD, 0, f"assumed: {_ASSUMED_TOKENS_PER_WORD} tokens a word")
        slope = (second.usage.prompt - probe.usage.prompt) / (many - few)
        overhead = max(0.0, probe.usage.prompt - slope * few)
        return Scale(WORDS, slope, overhead, f"the server's usage: {slope:.3f} tokens a word")


class _TokenizeCall:
    """Counts tokens with the server's /tokenize. Raises FailedRequestError."""

    def __init__(self, client: Client, endpoint: Endpoint, form: str) -> None:
        self._client, self._path, self._form = client, f"{endpoint.root}/tokenize", form
        self._fields = {"add_special": False, "add_special_tokens": False}
        if form == "prompt":
            self._fields = {"model": endpoint.model, "add_special_tokens": False}  # type: ignore[dict-item]

    async def __call__(self, text: str) -> int:
        value = await self._client.post_json(self._path, {**self._fields, self._form: text})
        found: Any = value.get("tokens") if isinstance(value, dict) else None
        if not isinstance(found, list):
            raise FailedRequestError("no tokens", "in the answer of /tokenize")
        return len(found)


async def _single_token_words(counter: Counter) -> tuple[str, ...]:
    """The words that are one token each after a space: asked for in groups, and one by one in those that are not."""

    async def tokens_of(words: Sequence[str]) -> int:
        return await counter(" ".join([WORDS[0], *words])) - first

    first = await counter(WORDS[0])
    found: list[str] = []
    for start in range(0, len(WORDS), _GROUP):
        group = WORDS[start : start + _GROUP]
        if await tokens_of(group) == len(group):
            found += group
            continue
        found += [word for word in group if await tokens_of([word]) == 1]
    return tuple(found)
