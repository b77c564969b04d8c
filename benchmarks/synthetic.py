"""Programs of one kind of op over made-up weights, for the benchmarks of kernels. Owns the weights and the clock."""

import math
import time
from collections.abc import Sequence
from statistics import median

import numpy as np
import numpy.typing as npt

from twostroke.native.batch import Batch, BatchChunk
from twostroke.native.executor import NativeExecutor
from twostroke.native.quantize import quantize_natively
from twostroke.program.phase import Phase
from twostroke.program.program import Program
from twostroke.weights.source import TensorInfo
from twostroke.weights.tensor_types import TensorType

_ROWS = 16  # that are quantised; the others repeat them


class MadeUpWeights:
    """A WeightSource: matrices of `kind` that keep the size of what they multiply, all other tensors in float32."""

    def __init__(self, program: Program, kind: TensorType) -> None:
        self._infos = {}
        for name, weight in program.weights.items():
            of = kind if name.startswith("blk.") else TensorType.F32
            size = weight.num_elements // of.block_size * of.block_bytes
            self._infos[name] = TensorInfo(name, weight.shape, of, 0, size)

    @property
    def names(self) -> Sequence[str]:
        return list(self._infos)

    def info(self, name: str) -> TensorInfo:
        return self._infos[name]

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        info = self._infos[name]
        values = np.random.default_rng(1).standard_normal((_ROWS, info.shape[-1])).astype(np.float32)
        values /= math.sqrt(info.shape[-1])
        return np.resize(quantize_natively(values, info.type), info.num_bytes)

    def release(self, name: str) -> None:
        """Nothing to give back."""


def batch_of(executor: NativeExecutor, rows: int, start: int, phase: Phase) -> Batch:
    """One request's rows `start` .. `start + rows` without outputs, its KV in the executor's blocks from the first."""
    ids = np.random.default_rng(2).integers(0, 16, rows).astype(np.int32)
    tables = tuple(np.arange(count, dtype=np.int32) for count in executor.num_blocks)
    return Batch((BatchChunk(ids, start, phase, tables, 0),))


def step_seconds(executor: NativeExecutor, batch: Batch, seconds: float) -> float:
    """The median step in the core of those that fit into `seconds`, at least three, after one that is not counted."""
    executor.collect(executor.submit(batch))
    found: list[float] = []
    ends = time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < ends:
        found.append(executor.collect(executor.submit(batch)).seconds)
    return median(found)
