"""Request: what was asked for, and how far it has come. Owns its tokens and its numbers; takes no decision."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from twostroke.engine.constraint import Constraint
from twostroke.engine.lookup import PromptLookup
from twostroke.kvcache.chain import BlockChain
from twostroke.kvcache.table import BlockTable
from twostroke.native.batch import IntArray, Mask, Sampling
from twostroke.program.phase import Phase


class State(StrEnum):
    """WAITING holds no blocks (new or preempted). PREFILL and DECODE tell which rows come next."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """STOP: a stop id, or its constraint is complete. LENGTH: `max_tokens`, or no room left. ERROR: the step or the
    constraint failed; the request has the error.
    """

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class GenerationParams:
    """How a request is to be continued.

    max_tokens       new tokens at most; None is all the room there is; 0 only processes the prompt
    stop_ids         a new token among these ends the request, itself being the last token
    ignore_eos       `stop_ids` do not end the request
    sampling         how each output becomes a token
    prompt_logprobs  score the prompt's tokens too, all but the first
    num_hidden       the prompt's last so many rows give the program's "hidden" rows; no token follows
    """

    max_tokens: int | None = None
    stop_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    sampling: Sampling = field(default_factory=Sampling)
    prompt_logprobs: bool = False
    num_hidden: int = 0


class TokenScore(NamedTuple):
    """A given token's log-probability (natural log), and (id, log-probability) of the most likely ones."""

    token_id: int
    logprob: float
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True, eq=False)
class Request:
    """A prompt to be continued. `id` is the caller's label; the object itself is the identity.

    `forced_ids` are taken as if they had been generated: their rows are decode rows, each is scored, and generation
    goes on after them. To score a text as a prompt, ask for `prompt_logprobs` and 0 new tokens. A `constraint` says
    which tokens each new one is chosen among. Blocks are shared only among requests of one `cache_salt`.

    Rows count the request's tokens: row r computes token r and, as output, token r + 1. Everything before
    `num_computed` is in the cache; outputs from `next_output` on are still wanted.
    """

    id: str
    prompt_ids: Sequence[int]
    params: GenerationParams = field(default_factory=GenerationParams)
    forced_ids: Sequence[int] = ()
    constraint: Constraint | None = None
    cache_salt: str = ""

    state: State = field(init=False, default=State.WAITING)
    finish_reason: FinishReason | None = field(init=False, default=None)
    error: BaseException | None = field(init=False, default=None)
    scores: list[TokenScore] = field(init=False, default_factory=list)
    num_preemptions: int = field(init=False, default=0)
    num_drafted: int = field(init=False, default=0)  # tokens tried before they were chosen
    num_accepted: int = field(init=False, default=0)  # of those, that were then chosen
    num_cached: int = field(init=False, default=0)  # prompt tokens that were in the cache when it first ran
    submitted_at: float = field(init=False, default=math.nan)
    max_tokens: int = field(init=False, default=0)
    sampling: Sampling = field(init=False)
    tokens: IntArray = field(init=False)  # (most tokens it can get,); num_tokens are known, drafts may follow
    mask: Mask | None = field(init=False, default=None)  # tokens that the constraint allows next
    table: BlockTable = field(init=False)
    chain: BlockChain = field(init=False)  # names of its full blocks
    lookup: PromptLookup | None = field(init=False, default=None)  # made when first used
    num_prompt: int = field(init=False)
    num_forced: int = field(init=False)
    num_tokens: int = field(init=False)
    num_computed: int = field(init=False, default=0)
    next_output: int = field(init=False, default=0)

    @property
    def is_prepared(self) -> bool:
        """`accept` has been called."""
        return not math.isnan(self.submitted_at)

    @property
    def num_generated(self) -> int:
        """Tokens the model chose; forced ones are not among them."""
        return self.num_tokens - self.num_prompt - self.num_forced

    @property
    def generated_ids(self) -> list[int]:
        ids: list[int] = self.tokens[self.num_prompt + self.num_forced : self.num_tokens].tolist()
        return ids

    @property
    def next_phase(self) -> Phase:
        return Phase.PREFILL if self.num_computed < self.num_prompt else Phase.DECODE

    @property
    def num_reusable(self) -> int:
        """Known tokens whose rows need not be computed if the cache has them: no output of theirs is wanted."""
        return min(self.next_output, self.num_tokens - 1)

    @property
    def has_caught_up(self) -> bool:
        """Only the row of the latest token is to be computed, and it is a generated one."""
        return self.num_prompt <= self.num_computed == self.num_tokens - 1

    def accept(self, max_tokens: int, table: BlockTable, chain: BlockChain, now: float) -> None:
        """Sets up what running needs, the limits being known. `now` is in seconds of the engine's clock."""
        known = [*self.prompt_ids, *self.forced_ids]
        self.tokens = np.empty(len(known) + max_tokens, np.int32)
        self.tokens[: len(known)] = known
        self.num_prompt, self.num_forced, self.num_tokens = len(self.prompt_ids), len(self.forced_ids), len(known)
        self.max_tokens, self.table, self.chain, self.submitted_at = max_tokens, table, chain, now
        self.sampling = self.params.sampling
        chain.extend(self.tokens[: len(known)], self.num_prompt)
        if (self.num_forced or self.params.prompt_logprobs) and self.sampling.num_logprobs < 0:
            self.sampling = replace(self.sampling, num_logprobs=0)  # a score is a log-probability
        if self.params.num_hidden:
            self.next_output = self.num_prompt - self.params.num_hidden
        elif self.params.prompt_logprobs:
            self.next_output = 0
        else:
            self.next_output = self.num_prompt - 1 if self.num_forced or max_tokens else self.num_prompt

    def append(self, token_id: int) -> None:
        self.tokens[self.num_tokens] = token_id
        self.num_tokens += 1
