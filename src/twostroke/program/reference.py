"""The reference executor: any Program, in NumPy, one request at a time. Owns the order of ops and the request's state.

The arithmetic of each op is in `reference_ops`. It is the meaning of a Program and the truth of tests, not a way to run
a model fast: weights are whole arrays, attention materialises its scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from twostroke.program.activations import Array
from twostroke.program.phase import Phase
from twostroke.program.program import Program
from twostroke.program.reference_ops import REFERENCE
from twostroke.program.reference_step import Cached, IntArray, Step
from twostroke.program.values import Weight


@dataclass(slots=True)
class ReferenceState:
    """What a request has in memory: how many tokens, and each cache's keys and values of all of them, or its state."""

    num_tokens: int = 0
    caches: dict[str, Cached] = field(default_factory=dict)


class ReferenceExecutor:
    """Runs a Program, fused or not, in float32 or float64.

    `weights(name)` gives a weight as an array of the program's shape. Each is asked for once and kept; with
    `keep_weights=False` it is asked for whenever an op uses it and dropped, which takes less memory and more time.
    """

    def __init__(
        self,
        program: Program,
        weights: Callable[[str], npt.NDArray[np.floating]],
        dtype: npt.DTypeLike = np.float32,
        *,
        keep_weights: bool = True,
    ) -> None:
        self.program = program
        self.dtype = np.dtype(dtype)
        self._weights = weights
        self._kept: dict[str, Array] | None = {} if keep_weights else None
        self._dead_after = _dead_after(program)

    def new_state(self) -> ReferenceState:
        """The state of a request that has no tokens yet."""
        return ReferenceState()

    def forward(
        self,
        state: ReferenceState,
        token_ids: Sequence[int] | IntArray,
        num_outputs: int | None = None,
        phase: Phase = Phase.PREFILL,
    ) -> dict[str, Array]:
        """Append tokens to the request and run them.

        `token_ids` (num_tokens,) follow those already in `state`, which is updated. Returns the program's outputs by
        public name, each (num_outputs, dim) for the last `num_outputs` of these tokens; None means all of them. An op
        with a form for each phase takes that of `phase`, which changes rounding alone. Raises
        ValueError for no tokens or more outputs than tokens, IndexError for a token outside the vocabulary.
        """
        ids = np.asarray(token_ids, dtype=np.int64)
        num_outputs = len(ids) if num_outputs is None else num_outputs
        if not len(ids) or not 0 <= num_outputs <= len(ids):
            raise ValueError(f"{num_outputs} outputs of {len(ids)} tokens")
        if ids.min() < 0:
            raise IndexError(f"token id {ids.min()} is negative")
        values: dict[str, Array] = {}
        caches = dict(state.caches)  # an op replaces an entry, so that a step that fails leaves the state as it was
        step = Step(ids, state.num_tokens, num_outputs, self._weight, values, caches, phase)
        for op, dead in zip(self.program.ops, self._dead_after, strict=True):
            values.update(zip(op.outputs, REFERENCE[type(op)](op, step), strict=True))
            for name in dead:
                del values[name]
        state.caches = caches
        state.num_tokens += len(ids)
        return {public: values[name] for public, name in self.program.outputs.items()}

    def _weight(self, weight: Weight) -> Array:
        if self._kept is not None and weight.name in self._kept:
            return self._kept[weight.name]
        array = self._weights(weight.name).astype(self.dtype, copy=False)
        if array.shape != weight.shape:
            raise ValueError(f"{weight} was given an array of shape {array.shape}")
        if self._kept is not None:
            self._kept[weight.name] = array
        return array


def _dead_after(program: Program) -> list[list[str]]:
    """For each op, the values that nothing reads after it."""
    last_use = {name: index for index, op in enumerate(program.ops) for name in (*op.outputs, *op.inputs)}
    dead: list[list[str]] = [[] for _ in program.ops]
    for name, index in last_use.items():
        if name not in program.outputs.values():
            dead[index].append(name)
    return dead
