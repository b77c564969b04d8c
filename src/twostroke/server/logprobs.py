"""Log-probabilities in the API's two forms. Owns how a token is written: its text, or its bytes where it has none."""

import math
from collections.abc import Sequence
from typing import Any

from twostroke.llm.answer_text import PlacedToken
from twostroke.text.tokenizer import Tokenizer

_LEAST = -9999.0  # JSON has no infinity; the API writes this for what cannot be


class TokenNames:
    """Tokens of one model as the API shows them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def bytes_of(self, token_id: int) -> bytes:
        """UTF-8 of a token, a control token's name included; empty for padding of the embedding table."""
        if token_id >= self._tokenizer.vocab_size:
            return b""
        if self._tokenizer.is_special(token_id):
            return self._tokenizer.token_text(token_id).encode("utf-8", "replace")
        return self._tokenizer.token_bytes(token_id)

    def text_of(self, token_id: int) -> str:
        """A token's text; one that is part of a character as `bytes:` and its bytes in hexadecimal."""
        spelled = self.bytes_of(token_id)
        try:
            return spelled.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)

    def chat_entry(self, token_id: int, logprob: float | None) -> dict[str, Any]:
        """One entry of a chat's `logprobs.content`, without alternatives."""
        spelled = self.bytes_of(token_id)
        return {
            "token": spelled.decode("utf-8", "replace"),
            "logprob": finite(logprob),
            "bytes": list(spelled),
        }


def finite(logprob: float | None) -> float:
    """The number where JSON can have it."""
    return logprob if logprob is not None and math.isfinite(logprob) else _LEAST


def chat_logprobs(names: TokenNames, tokens: Sequence[PlacedToken]) -> dict[str, Any]:
    """`logprobs` of a chat's choice or chunk."""
    content = []
    for placed in tokens:
        token = placed.token
        entry = names.chat_entry(token.token_id, token.logprob)
        entry["top_logprobs"] = [names.chat_entry(other, logprob) for other, logprob in token.alternatives]
        content.append(entry)
    return {"content": content, "refusal": None}


class CompletionLogprobs:
    """`logprobs` of a completion's choice, growing: four lists of one length."""

    def __init__(self, names: TokenNames, num_alternatives: int) -> None:
        self._names = names
        self._num_alternatives = num_alternatives
        self.tokens: list[str] = []
        self.token_logprobs: list[float | None] = []
        self.top_logprobs: list[dict[str, float] | None] = []
        self.text_offset: list[int] = []

    def add(
        self, token_id: int, logprob: float | None, alternatives: Sequence[tuple[int, float]] | None, offset: int
    ) -> None:
        """One token; `logprob` and `alternatives` are None for the first of a prompt, which nothing precedes."""
        self.tokens.append(self._names.text_of(token_id))
        self.token_logprobs.append(None if alternatives is None else finite(logprob))
        self.text_offset.append(offset)
        if alternatives is None:
            self.top_logprobs.append(None)
            return
        likely: dict[str, float] = {}
        for other, number in alternatives[: self._num_alternatives]:
            likely.setdefault(self._names.text_of(other), finite(number))
        self.top_logprobs.append(likely)

    def fields(self) -> dict[str, Any]:
        """As the API has them."""
        return {
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
        }
