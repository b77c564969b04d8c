"""CompletionForm: answers of /v1/completions. Owns chunks, the response, and how an echoed prompt is put first."""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from twostroke.engine.request import TokenScore
from twostroke.server.errors import ApiError
from twostroke.server.head import Head
from twostroke.server.job import Delta
from twostroke.server.logprobs import CompletionLogprobs, TokenNames
from twostroke.server.wire import DONE, event, text_of
from twostroke.text.detokenizer import Detokenizer
from twostroke.text.tokenizer import Tokenizer


class CompletionForm:
    """Prompts continued. `num_logprobs` is None where log-probabilities are not wanted."""

    def __init__(self, head: Head, tokenizer: Tokenizer, *, num_logprobs: int | None, echo: bool) -> None:
        self._head = head
        self._tokenizer = tokenizer
        self._names = TokenNames(tokenizer)
        self._num_logprobs = num_logprobs
        self._echo = echo
        self._prefix = head.chunk_prefix("text_completion")
        self._suffix = head.chunk_suffix()
        self._offsets: dict[int, int] = {}  # characters before the answer's text, once the prompt was put first
        self._texts: dict[int, list[str]] = {index: [] for index in range(head.num_choices)}
        self._logprobs: dict[int, CompletionLogprobs] = {}
        self._reasons: dict[int, str] = {}

    def open(self) -> bytes:
        return b""

    def deltas(self, deltas: Sequence[Delta]) -> bytes:
        return "".join(self._chunk(delta) for delta in deltas).encode("utf-8")

    def progress(self, processed: int, total: int) -> bytes:
        return self._head.progress_event("text_completion", processed, total)

    def close(self) -> bytes:
        return self._head.last_event("text_completion") + DONE

    def failed(self, error: ApiError) -> bytes:
        return event(error.data().decode("ascii")) + DONE

    def keep(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            logprobs = self._logprobs.setdefault(delta.index, self._new_logprobs())
            self._texts[delta.index].append(self._text(delta, logprobs))
            if delta.reason is not None:
                self._reasons[delta.index] = delta.reason

    def body(self) -> dict[str, Any]:
        choices = [
            {
                "index": index,
                "text": "".join(self._texts[index]),
                "logprobs": None if self._num_logprobs is None else self._logprobs[index].fields(),
                "finish_reason": self._reasons[index],
            }
            for index in range(self._head.num_choices)
        ]
        return self._head.body("text_completion", choices)

    def _chunk(self, delta: Delta) -> str:
        logprobs = self._new_logprobs()
        text = text_of(self._text(delta, logprobs))
        scores = "null" if self._num_logprobs is None else text_of(logprobs.fields())
        reason = "null" if delta.reason is None else f'"{delta.reason}"'
        return (
            f'{self._prefix}{{"index":{delta.index},"text":{text},"logprobs":{scores},"finish_reason":{reason}}}]'
            f"{self._head.chunk_suffix() if self._head.counts_on else self._suffix}"
        )

    def _new_logprobs(self) -> CompletionLogprobs:
        return CompletionLogprobs(self._names, self._num_logprobs or 0)

    def _text(self, delta: Delta, logprobs: CompletionLogprobs) -> str:
        """The delta's text, the prompt before it where it is the first of an echo; its tokens go to `logprobs`."""
        text = delta.text
        if delta.index not in self._offsets:
            prompt = self._prompt_text(delta.index, logprobs) if self._echo else ""
            self._offsets[delta.index] = len(prompt)
            text = prompt + text
        offset = self._offsets[delta.index]
        for placed in delta.tokens:
            token = placed.token
            logprobs.add(token.token_id, token.logprob, token.alternatives, offset + placed.start)
        return text

    def _prompt_text(self, index: int, logprobs: CompletionLogprobs) -> str:
        prompt = self._head.prepared.prompt_of(index)
        pieces: list[str] = []
        offset = 0
        detokenizer = Detokenizer(self._tokenizer, skip_special=prompt.text is not None)
        scores = self._head.prepared.choices[index].request.scores if self._num_logprobs is not None else []
        known: Sequence[TokenScore | None] = [None, *scores]
        for token_id, score in zip(prompt.ids, known if scores else repeat(None), strict=False):
            logprob = score.logprob if score else None
            if self._num_logprobs is not None:
                logprobs.add(token_id, logprob, score.alternatives if score else None, offset)
            is_padding = token_id >= self._tokenizer.vocab_size
            pieces.append("" if is_padding else detokenizer.push(token_id))
            offset += len(pieces[-1])
        pieces.append(detokenizer.flush())
        return "".join(pieces) if prompt.text is None else prompt.text
