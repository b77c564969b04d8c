"""What the Python API returns: plain frozen data. Owns no behaviour."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from twostroke.engine.ledger import RequestSummary
from twostroke.engine.request import TokenScore
from twostroke.llm.paging import Paging
from twostroke.program.phase import Phase

Message = Mapping[str, object]
Prompt = str | Sequence[int]
FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer.

    text           without control tokens, and without a stop string and what came after it
    token_ids      every token the model chose, a final end-of-text token included
    logprobs       one a token, where asked for
    finish_reason  "stop": end of text or a stop string; "length": `max_tokens` or a full context; "cancelled"
    seed           repeats this answer when given again
    summary        the ledger's account of the request: times, FLOPs and bytes of each phase
    paging         whether decode waited for the disk; of the whole process, requests beside this one included
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenScore, ...] | None
    finish_reason: FinishReason
    prompt_tokens: int
    seed: int
    summary: RequestSummary
    paging: Paging

    @property
    def completion_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that did not have to be computed."""
        return self.summary.cached_tokens


@dataclass(frozen=True, slots=True)
class Score:
    """Natural log-probabilities of given tokens: `logprobs[i]` is that of `token_ids[i + 1]` after those before it."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    phase: Phase

    @property
    def mean_nll(self) -> float:
        """Mean negative log-likelihood in nats; its exponential is the perplexity."""
        return -sum(self.logprobs) / len(self.logprobs)
