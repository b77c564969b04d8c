"""Random packed weights in memory, and native programs over them. Owns test data and how it is run, no checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from twostroke.native.batch import Batch, BatchChunk, Sampling, StepResult
from twostroke.native.executor import ExecutorConfig, NativeExecutor
from twostroke.program.phase import Phase
from twostroke.program.program import Program
from twostroke.program.reference import ReferenceExecutor
from twostroke.weights.dequantize import dequantize
from twostroke.weights.grouped_blocks import Groups, pack
from twostroke.weights.source import TensorInfo
from twostroke.weights.tensor_types import TensorType

Floats = npt.NDArray[np.float32]
FLOAT_TYPES = (TensorType.F32, TensorType.F16, TensorType.BF16)
# Where in its blocks a type has float16 scales. IQ1_M and MXFP4 have theirs in other forms.
SCALES: Mapping[TensorType, tuple[int, ...]] = {
    **dict.fromkeys((TensorType.Q4_0, TensorType.Q5_0, TensorType.Q8_0, TensorType.IQ4_NL, TensorType.IQ4_XS), (0,)),
    **dict.fromkeys((TensorType.Q4_1, TensorType.Q5_1, TensorType.Q4_K, TensorType.Q5_K), (0, 2)),
    **dict.fromkeys((TensorType.IQ2_XXS, TensorType.IQ2_XS, TensorType.IQ2_S, TensorType.IQ1_S), (0,)),
    **dict.fromkeys((TensorType.IQ3_XXS, TensorType.IQ3_S), (0,)),
    TensorType.Q2_K: (80, 82),
    TensorType.Q3_K: (108,),
    TensorType.Q6_K: (208,),
    TensorType.TQ2_0: (64,),
    TensorType.TQ1_0: (52,),
}


@dataclass(frozen=True)
class Packed:
    """A tensor's bytes, as a file holds them."""

    type: TensorType
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    @property
    def values(self) -> Floats:
        return dequantize(self.data, self.type, self.shape)


class MemorySource:
    """A WeightSource over packed tensors; a float32 array stands for an F32 tensor."""

    def __init__(self, tensors: Mapping[str, Packed | Floats]) -> None:
        self.tensors = {name: t if isinstance(t, Packed) else floats(t) for name, t in tensors.items()}

    @property
    def names(self) -> Sequence[str]:
        return list(self.tensors)

    def info(self, name: str) -> TensorInfo:
        packed = self.tensors[name]
        return TensorInfo(name, packed.shape, packed.type, 0, packed.data.size)

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        return self.tensors[name].data

    def release(self, name: str) -> None:
        """Nothing to give back."""

    def values(self, name: str) -> Floats:
        return self.tensors[name].values


def floats(values: npt.NDArray[np.floating]) -> Packed:
    plain = np.ascontiguousarray(values, np.float32)
    return Packed(TensorType.F32, plain.shape, plain.reshape(-1).view(np.uint8))


def random_matrix(kind: TensorType, rows: int, cols: int, seed: int = 0) -> Packed:
    """Every bit pattern of quants and sub-block scales can occur; only the scales of whole blocks are kept small."""
    rng = np.random.default_rng(seed)
    if kind in FLOAT_TYPES:
        return float_matrix(kind, rng.standard_normal((rows, cols)))
    if not kind.is_in_gguf:
        return Packed(kind, (rows, cols), pack(random_groups(kind, rows, cols, rng), kind))
    count = rows * cols // kind.block_size
    blocks = rng.integers(0, 256, (count, kind.block_bytes), np.uint8)
    for at in SCALES.get(kind, ()):
        blocks[:, at : at + 2] = small_halves(rng, count)[:, None].view(np.uint8)
    if kind is TensorType.MXFP4:
        blocks[:, 0] = rng.integers(115, 130, count)  # 2^(e - 127)
    if kind is TensorType.IQ1_M:  # four bits of the scale at the top of each of the last four uint16
        scales = small_halves(rng, count).view(np.uint16)
        for nibble in range(4):
            high = (scales >> (4 * nibble) & 15).astype(np.uint8) << 4
            blocks[:, 49 + 2 * nibble] = blocks[:, 49 + 2 * nibble] & 15 | high
    return Packed(kind, (rows, cols), blocks.reshape(-1))


def random_groups(kind: TensorType, rows: int, cols: int, rng: np.random.Generator) -> Groups:
    """Codes of every pattern, but for FP8's two that are no numbers; scales that their own type holds."""
    code, group, scale = kind.name.split("_")
    codes = rng.integers(0, 16 if code == "G4" else 256, (rows, cols)).astype(np.uint8)
    if code == "F8":
        codes[codes & 127 == 127] = 1
    shape = (rows, cols // int(group))
    scales = rng.uniform(-0.05, 0.05, shape).astype(np.float16 if scale == "F16" else np.float32)
    if scale == "BF16":
        scales = (scales.view(np.uint32) >> 16).astype(np.uint16)
    zeros = rng.integers(0, 16, shape).astype(np.uint8) if code == "G4" else None
    return Groups(codes, scales, zeros, int(group))


def float_matrix(kind: TensorType, values: npt.NDArray[np.floating]) -> Packed:
    """Values rounded to a float type; to BF16 towards zero."""
    plain = np.ascontiguousarray(values, np.float32)
    if kind is TensorType.F16:
        stored: npt.NDArray[Any] = plain.astype(np.float16)
    else:
        stored = plain if kind is TensorType.F32 else (plain.view(np.uint32) >> 16).astype(np.uint16)
    return Packed(kind, plain.shape, stored.reshape(-1).view(np.uint8))


def small_halves(rng: np.random.Generator, count: int) -> npt.NDArray[np.float16]:
    return rng.uniform(-0.05, 0.05, count).astype(np.float16)


def quantized_matrix(kind: TensorType, values: npt.NDArray[np.floating]) -> Packed:
    """The nearest blocks to given values; Q4_1 and Q8_0 only."""
    data = gguf.quants.quantize(values.astype(np.float32), gguf.GGMLQuantizationType(int(kind)))
    return Packed(kind, values.shape, data.reshape(-1).view(np.uint8))


def native(
    program: Program, source: Any, isa: str = "scalar", *, fused: bool = True, **settings: Any
) -> NativeExecutor:
    """An executor filled with NaN: what reads a value before it is written gives NaN."""
    groups = len(program.cache_groups)
    context = settings.setdefault("max_context", 1024)
    settings.setdefault("num_blocks", (-(-context // 16),) * groups)
    settings.setdefault("num_threads", 1)
    executor = NativeExecutor(program, source, ExecutorConfig(isa=isa, **settings), fused=fused)
    executor.poison()
    return executor


ROUNDING = ("avx512_bf16", "amx")  # instruction sets that multiply prompt rows in bfloat16


def chunk(
    token_ids: npt.ArrayLike, start: int = 0, num_outputs: int | None = None, **fields: Any
) -> tuple[npt.NDArray[np.int32], int, int, dict[str, Any]]:
    """What `run` makes a BatchChunk of; every row is a generated one and gives an output unless said otherwise.

    Generated rows have the same bits on every instruction set; prompt rows have on those that are not ROUNDING.
    """
    ids = np.asarray(token_ids, np.int32)
    return ids, start, len(ids) if num_outputs is None else num_outputs, fields


def batch_of(executor: NativeExecutor, *chunks: Any) -> Batch:
    """Chunks of one request each, all with the executor's blocks from the first on (unless `block_ids` is given)."""
    tables = tuple(np.arange(count, dtype=np.int32) for count in executor.num_blocks)
    made = []
    for ids, start, num_outputs, fields in chunks:
        phase = fields.pop("phase", Phase.DECODE)
        block_ids = fields.pop("block_ids", tables)
        made.append(BatchChunk(ids, start, phase, block_ids, num_outputs, **fields))
    return Batch(tuple(made))


def run(executor: NativeExecutor, *chunks: Any) -> tuple[StepResult, Floats]:
    """One step: its result, and the logits of every output (num_outputs, dim)."""
    return executor.collect_value(executor.submit(batch_of(executor, *chunks), "logits"))


def sample(executor: NativeExecutor, token_ids: npt.ArrayLike, sampling: Sampling, **fields: Any) -> StepResult:
    """One step with one output after `token_ids`."""
    return run(executor, chunk(token_ids, num_outputs=1, sampling=sampling, **fields))[0]


def reference(program: Program, source: MemorySource) -> ReferenceExecutor:
    return ReferenceExecutor(program, source.values, np.float64)


def forward(executor: ReferenceExecutor, token_ids: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Logits of every row of a new request."""
    ids = np.asarray(token_ids, np.int64)
    out: npt.NDArray[np.float64] = executor.forward(executor.new_state(), ids)["logits"]
    return out
