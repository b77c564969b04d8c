"""StepPlan: what one step will run, as plain data, and the batch it becomes. Owns no policy."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from twostroke.engine.request import Request
from twostroke.native.batch import Batch, BatchChunk, IntArray
from twostroke.program.cost import ChunkShape
from twostroke.program.phase import Phase


@dataclass(frozen=True, slots=True)
class Chunk(ChunkShape):
    """Rows `start` .. `start + length` of a request, all of one phase; the last `num_outputs` give outputs.

    The phase is that of the tokens: prompt rows are PREFILL, generated rows DECODE, also when they are computed again
    and so many at once. `adapter_id` None is the base model. `drafts` are guesses of the tokens after the first row's,
    whose rows follow it.
    """

    request: Request
    phase: Phase = field(kw_only=True)
    adapter_id: int | None = None
    drafts: tuple[int, ...] = ()

    @property
    def samples(self) -> bool:
        """Its last output is a new token of the request."""
        request = self.request
        is_last = self.start + self.length == request.num_tokens
        return bool(self.num_outputs) and is_last and request.num_generated < request.max_tokens


class StepPlan(NamedTuple):
    """Chunks of one step, at most one a request; the first `num_decode` are rows of running answers.

    `target_s` is what the step was meant to take at most, in seconds, where answers run beside prefill.
    """

    chunks: tuple[Chunk, ...]
    num_decode: int = 0
    target_s: float | None = None

    @property
    def decode(self) -> tuple[Chunk, ...]:
        return self.chunks[: self.num_decode]

    def without(self, requests: Collection[Request]) -> "StepPlan":
        """The plan without the chunks of those requests."""
        decode, others = (
            tuple(chunk for chunk in chunks if chunk.request not in requests)
            for chunks in (self.decode, self.chunks[self.num_decode :])
        )
        return StepPlan(decode + others, len(decode), self.target_s)

    @property
    def wants_hidden(self) -> bool:
        """Some output row is wanted as its hidden row."""
        return any(chunk.num_outputs and chunk.request.params.num_hidden for chunk in self.chunks)

    def batch(self, block_tokens: int) -> Batch:
        """The same step in numbers. Arrays are views of the requests' own; running the step must not change them."""
        return Batch(tuple(_batch_chunk(chunk, block_tokens) for chunk in self.chunks))

    def batch_of_unknown(self, block_tokens: int) -> Batch:
        """The same where no row's token is known yet: 0 stands for it."""
        chunks = self.batch(block_tokens).chunks
        return Batch(tuple(chunk._replace(token_ids=np.zeros_like(chunk.token_ids)) for chunk in chunks))


def next_chunk(request: Request, max_rows: int) -> Chunk:
    """The request's next rows, `max_rows` at most, up to the end of their phase."""
    start, phase = request.num_computed, request.next_phase
    last = request.num_prompt if phase is Phase.PREFILL else request.num_tokens
    end = min(last, start + max_rows)
    return Chunk(start, end - start, max(0, end - max(start, request.next_output)), request, phase=phase)


def _batch_chunk(chunk: Chunk, block_tokens: int) -> BatchChunk:
    request = chunk.request
    end = chunk.start + chunk.length
    first_output = end - chunk.num_outputs
    is_scored = not request.params.num_hidden and first_output + 1 < min(end + 1, request.num_tokens)
    return BatchChunk(
        request.tokens[chunk.start : end],
        chunk.start,
        chunk.phase,
        request.table.first(-(-end // block_tokens)),
        chunk.num_outputs,
        _targets(request, first_output, end) if is_scored else None,
        request.sampling,
        request.tokens[:end] if request.sampling.has_penalties else None,
        request.mask if chunk.samples else None,
        request.num_prompt,
        first_output + 1 - request.num_prompt,
    )


def _targets(request: Request, first_output: int, end: int) -> IntArray:
    """(end - first_output,): each row's next token where it is known, else -1."""
    targets = np.full(end - first_output, -1, np.int32)
    known = request.tokens[first_output + 1 : min(end + 1, request.num_tokens)]
    targets[: len(known)] = known
    return targets
