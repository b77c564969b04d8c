"""What the reference's rules read and write while a step runs. Owns no arithmetic."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.program.activations import Array
from twostroke.program.phase import Phase
from twostroke.program.values import Weight

IntArray = npt.NDArray[np.integer[Any]]
Cached = tuple[Array, ...]  # what an op keeps of a request: of attention keys and values, one row a token


@dataclass(frozen=True, slots=True)
class Step:
    """What ops read and write while a step runs: `token_ids` at positions `start` ... of one request."""

    token_ids: IntArray  # (num_tokens,)
    start: int
    num_outputs: int
    weight: Callable[[Weight], Array]
    values: dict[str, Array]
    caches: dict[str, Cached]
    phase: Phase = Phase.PREFILL


Rule = Callable[[Any, Step], tuple[Array, ...]]
