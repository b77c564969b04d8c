"""What crosses between engine and executor: plain numbers for one step, and what comes back. Owns no policy."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twostroke.program.phase import Phase

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one output row becomes a token. Order: penalties and bias, mask, temperature, top-k, top-p, min-p, draw.

    temperature 0 is greedy. top_k 0, top_p 1 and min_p 0 switch those off. The draw is a function of (seed, choice,
    output index) alone. `num_logprobs` is how many alternatives to report; -1 reports none, 0 only the token's own.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0
    choice: int = 0
    num_logprobs: int = -1

    @property
    def has_penalties(self) -> bool:
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


class BatchChunk(NamedTuple):
    """Consecutive rows of one request: tokens `start` .. `start + len(token_ids)`.

    token_ids    (length,)
    block_ids    one (num_blocks,) array a cache group, covering tokens 0 .. start + length
    num_outputs  the last `num_outputs` rows give outputs
    targets      (num_outputs,): score these tokens instead of sampling; -1 samples
    history      (start + length,) all tokens of the request so far, `num_prompt_tokens` of them its prompt; read
                 only where sampling has penalties
    mask         (ceil(vocab_size / 32),): sampled outputs are tokens t whose bit t % 32 of word t // 32 is set; None
                 allows all
    output_index index of the first output among the request's generated tokens (the draw's counter)
    """

    token_ids: IntArray
    start: int
    phase: Phase
    block_ids: tuple[IntArray, ...]
    num_outputs: int = 0
    targets: IntArray | None = None
    sampling: Sampling = Sampling()
    history: IntArray | None = None
    mask: Mask | None = None
    num_prompt_tokens: int = 0
    output_index: int = 0


class Batch(NamedTuple):
    """One step. Rows of all chunks run together; each weight is read once."""

    chunks: tuple[BatchChunk, ...]

    @property
    def num_tokens(self) -> int:
        return sum(len(chunk.token_ids) for chunk in self.chunks)

    @property
    def num_outputs(self) -> int:
        return sum(chunk.num_outputs for chunk in self.chunks)


class StepResult(NamedTuple):
    """Outputs in the order of chunks and rows.

    token_ids     (num_outputs,) sampled, or the target
    logprobs      (num_outputs,) of that token, natural log, from the unmodified logits (before penalties,
                  bias and mask); NaN where none was asked for
    top_ids       (num_outputs, n), top_logprobs (num_outputs, n): most likely first; n is the largest number asked
                  for in the batch, short rows padded with -1 and NaN
    seconds       wall time of the step inside the native core
    """

    token_ids: IntArray
    logprobs: FloatArray
    top_ids: IntArray
    top_logprobs: FloatArray
    seconds: float
