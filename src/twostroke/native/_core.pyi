"""The compiled core (csrc/bindings.cpp)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Norm = tuple[int, int, float, bool]  # weight, bias, eps, layer
block_tokens: int
ADD: int
GATE_SILU: int
GATE_GELU: int
GATE_GELU_TANH: int
GATE_SWIGLU_OAI: int
SILU: int
GELU: int
GELU_TANH: int
SQUARED_RELU: int
SCALE: int
SOFT_CAP: int
SIGMOID_GATE: int

def available_isas() -> list[str]: ...
def emulate_amx() -> None: ...
def probe_read(isa: str, num_threads: int, num_bytes: int, prefetch_bytes: int, seconds: float) -> float: ...
def probe_flops(isa: str, num_threads: int, kind: str, seconds: float) -> float: ...
def quantize(isa: str, tensor_type: int, values: npt.NDArray[np.float32], blocks: npt.NDArray[np.uint8]) -> None: ...

class StepArrays: ...

class Executor:
    def __init__(
        self,
        isa: str,
        num_threads: int,
        max_rows: int,
        max_context: int,
        kv_type: int,
        num_blocks: Sequence[int],
    ) -> None: ...
    def add_matrix(self, tensor_type: int, rows: int, cols: int, codebook: int) -> int: ...
    def pack(self, sources: list[tuple[int, int, int, Array]]) -> None: ...
    def add_codebook(self, entries: npt.NDArray[np.int8]) -> int: ...
    def add_vector(self, data: npt.NDArray[np.float32]) -> int: ...
    def add_rope(self, inverse_frequencies: npt.NDArray[np.float64], interleaved: bool, magnitude: float) -> int: ...
    def add_value(self, dim: int, offset: int, of_outputs: bool) -> int: ...
    def add_embed(self, out: int, matrix: int) -> None: ...
    def add_normalize(self, out: int, x: int, norm: Norm, dim: int) -> None: ...
    def add_linear(
        self,
        outs: Sequence[int],
        x: int,
        matrices: Sequence[int],
        biases: Sequence[int],
        norm: Norm,
        residual: int,
        gate: int,
    ) -> None: ...
    def add_rope_op(self, out: int, x: int, head_dim: int, rope: int) -> None: ...
    def add_attention(
        self,
        out: int,
        q: int,
        k: int,
        v: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        soft_cap: float,
        sinks: int,
        window: int,
        group: int,
        rope: int,
    ) -> None: ...
    def add_elementwise(self, kind: int, out: int, a: int, b: int, constant: float) -> None: ...
    def add_experts(
        self,
        out: int,
        x: int,
        router: int,
        gates: Sequence[int],
        ups: Sequence[int],
        downs: Sequence[int],
        biases: tuple[int, int, int],
        top_k: int,
        of_all: bool,
        scale: float,
        gate: int,
    ) -> None: ...
    def add_reorder(self, out: int, x: int, order: npt.NDArray[np.int32]) -> None: ...
    def add_output_rows(self, out: int, x: int) -> None: ...
    def finish(self, logits: int) -> None: ...
    def probe_weights(self, seconds: float) -> float: ...
    def poison(self) -> None: ...
    def lay_out(
        self,
        token_ids: npt.NDArray[np.int32],
        chunks: npt.NDArray[np.int64],
        tables: Sequence[npt.NDArray[np.int32]],
        targets: Sequence[npt.NDArray[np.int32] | None],
        histories: Sequence[npt.NDArray[np.int32] | None],
        sampling: npt.NDArray[np.float64],
        counters: npt.NDArray[np.int64],
        bias_ids: Sequence[Array | None],
        bias_values: Sequence[Array | None],
        masks: Sequence[npt.NDArray[np.uint32] | None],
    ) -> StepArrays: ...
    def begin(
        self,
        arrays: StepArrays,
        token_ids: npt.NDArray[np.int32],
        logprobs: npt.NDArray[np.float32],
        top_ids: npt.NDArray[np.int32],
        top_logprobs: npt.NDArray[np.float32],
        value: int,
        value_out: npt.NDArray[np.float32] | None = None,
    ) -> None: ...
    def end(self, arrays: StepArrays) -> float: ...
    def export_blocks(self, block_ids: Sequence[int], out: npt.NDArray[np.uint8]) -> None: ...
    def import_blocks(self, block_ids: Sequence[int], data: npt.NDArray[np.uint8]) -> None: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def kv_bytes(self) -> int: ...
    @property
    def scratch_bytes(self) -> int: ...
