"""Timing the reference executor in float64: the exact end of the scale of widths. Owns those runs.

It is the arithmetic that every other width is measured against, not a way to run a model fast.
"""

import math
import random
from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np

from twostroke.bench.cell import Pass, Scenario
from twostroke.engine.account import PhaseTotals
from twostroke.errors import ConfigError
from twostroke.models.load import Model, dequantized
from twostroke.program.cost import ChunkShape, CostModel, Storage, total_weight_bytes
from twostroke.program.passes import fuse
from twostroke.program.phase import Phase
from twostroke.program.reference import ReferenceExecutor, ReferenceState
from twostroke.roofline.memory import available_memory, check_memory

_BITS = 64.0


class ReferenceBench:
    """A model in the reference executor. Raises NotEnoughMemoryError, with the sum, where float64 does not fit."""

    def __init__(self, model: Model) -> None:
        program = fuse(model.program)
        storage = Storage(dict.fromkeys(program.weights, _BITS), _BITS, _BITS, _BITS)
        self.weight_bytes = round(total_weight_bytes(program, storage))
        check_memory({"weights in float64": self.weight_bytes}, available_memory())
        self._cost = CostModel(program, storage)
        self._vocab = model.config.vocab_size
        self._executor = ReferenceExecutor(program, dequantized(model.source), np.float64)

    def passes(self, scenario: Scenario, repeat: int, seed: int = 0) -> Iterator[Pass]:
        """As `in_process.passes`. Raises ConfigError for a batch: the reference runs one request."""
        if scenario.batch != 1:
            raise ConfigError(f"weights f64: the reference runs one request, not a batch of {scenario.batch}")
        draw = random.Random(seed)
        for number in range(repeat + 1):
            found = self._one_pass(scenario, draw)
            if number:
                yield found

    def perplexity(self, ids: Sequence[int]) -> float:
        """Of the tokens after the first."""
        logits = self._executor.forward(self._executor.new_state(), ids)["logits"][:-1]
        largest = logits.max(axis=1, keepdims=True)
        total = np.log(np.exp(logits - largest).sum(axis=1)) + largest[:, 0]
        return math.exp(float(np.mean(total - logits[np.arange(len(ids) - 1), np.asarray(ids[1:])])))

    def _one_pass(self, scenario: Scenario, draw: random.Random) -> Pass:
        state = self._executor.new_state()
        if scenario.depth:
            self._executor.forward(state, self._tokens(draw, scenario.depth), 1)
        prefill = self._run(state, self._tokens(draw, max(1, scenario.prompt_tokens)), Phase.PREFILL)
        steps = [self._run(state, self._tokens(draw, 1), Phase.DECODE) for _ in range(scenario.gen_tokens)]
        timed = prefill if scenario.prompt_tokens else None
        return Pass(timed, _sum(steps) if steps else None, None if timed is None else timed.seconds)

    def _run(self, state: ReferenceState, ids: Sequence[int], phase: Phase) -> PhaseTotals:
        cost = self._cost.step((ChunkShape(state.num_tokens, len(ids), 1),))
        started = perf_counter()
        self._executor.forward(state, ids, 1, phase)
        seconds = perf_counter() - started
        moved = (cost.flops, cost.weight_bytes, cost.kv_bytes, cost.activation_bytes)
        return PhaseTotals(len(ids), len(ids), 1, seconds, 0.0, *moved)

    def _tokens(self, draw: random.Random, count: int) -> list[int]:
        return [draw.randrange(self._vocab) for _ in range(count)]


def _sum(steps: Sequence[PhaseTotals]) -> PhaseTotals:
    names = PhaseTotals.__slots__
    return PhaseTotals(*(sum(getattr(step, name) for step in steps) for name in names))
