"""An executor whose logits a test states: each token id's row of a table. Owns random logits and ways to draw."""

import numpy as np
from tests.native.in_memory import MemorySource, chunk, native, run

from twostroke.native.batch import Sampling, StepResult
from twostroke.native.executor import NativeExecutor, available_isas
from twostroke.program.builder import Builder

ISAS = available_isas()
VOCAB = 1000
DRAWS = 4000
RNG = np.random.default_rng(0)
RANDOM = (RNG.standard_normal((8, VOCAB)) * np.array([[0.5, 1, 2, 3, 4, 6, 8, 12]]).T).astype(np.float32)


def executor_of(rows: np.ndarray, isa: str = ISAS[-1]) -> NativeExecutor:
    """Token id i gives the logits rows[i]; ids beyond the rows repeat the last."""
    table = np.concatenate([rows, np.repeat(rows[-1:], max(0, rows.shape[1] - len(rows)), axis=0)])
    b = Builder()
    b.output("logits", b.output_rows(b.embed("x", len(table), table.shape[1])))
    source = MemorySource({"x.weight": table})
    return native(b.build(), source, isa, num_threads=2, max_context=DRAWS, max_step_tokens=DRAWS)


def draws(executor: NativeExecutor, row: int, sampling: Sampling, count: int = DRAWS) -> np.ndarray:
    """Tokens of output indices 0 .. count."""
    return run(executor, chunk([row] * count, sampling=sampling))[0].token_ids


def one(executor: NativeExecutor, row: int, sampling: Sampling, **fields: object) -> StepResult:
    return run(executor, chunk([row], sampling=sampling, **fields))[0]
