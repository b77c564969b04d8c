"""Executor: what the engine needs of whatever runs a step. Owns the interface only."""

from collections.abc import Sequence
from typing import Any, Protocol

from twostroke.native.batch import Batch, ByteArray, FloatArray, IntArray, StepResult
from twostroke.program.cost import CostModel


class Executor(Protocol):
    """Runs batches one after the other, in the order submitted; owns the arrays that block ids point into.

    block_tokens     tokens in a block
    num_blocks       blocks of each cache group
    block_bytes      bytes that a block of every group takes together
    max_step_tokens  most rows a batch may have
    cost             what a step computes and moves
    """

    @property
    def block_tokens(self) -> int: ...

    @property
    def num_blocks(self) -> tuple[int, ...]: ...

    @property
    def block_bytes(self) -> int: ...

    @property
    def max_step_tokens(self) -> int: ...

    @property
    def cost(self) -> CostModel: ...

    def export_blocks(self, block_ids: Sequence[int]) -> ByteArray:
        """What blocks hold, one a cache group, as bytes. Between steps."""

    def import_blocks(self, block_ids: Sequence[int], data: ByteArray) -> None:
        """Makes blocks hold what `export_blocks` gave. Between steps."""

    def submit(self, batch: Batch, output: str | None = None) -> Any:
        """Starts a step, which may go on without its caller, and returns a handle. What the batch holds is read until
        that is collected."""

    def lay_out(self, batch: Batch, output: str | None = None) -> Any:
        """The handle of a step that does not run yet, for `start`."""

    def start(self, handle: Any, token_ids: IntArray | None = None) -> None:
        """Starts a step that was laid out, with these tokens, (num_tokens,), instead of the batch's."""

    def collect(self, handle: Any) -> StepResult:
        """Waits for the step and returns its outputs; after an interrupt, once more."""

    def collect_value(self, handle: Any) -> tuple[StepResult, FloatArray]:
        """As `collect`, and the program's output that was named at submission, (num_outputs, dim)."""
