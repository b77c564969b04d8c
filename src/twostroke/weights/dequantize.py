"""Packed blocks to float32, in NumPy: the meaning of each tensor type. Owns no speed; the native kernels read blocks.

The blocks' layouts are in a module a skeleton: `blocks_32`, `super_blocks`, `table_blocks`, `codebook_blocks`,
`grouped_blocks`.

Each product and sum is rounded to float32 in the order the format's reference gives, so results are its bits exactly.
"""

from collections.abc import Callable

import numpy as np

from twostroke.errors import UnsupportedModelError
from twostroke.weights import blocks_32, codebook_blocks, super_blocks, table_blocks
from twostroke.weights.bit_fields import Bytes, Floats
from twostroke.weights.grouped_blocks import unpacker
from twostroke.weights.tensor_types import TensorType

# Blocks are widened this many values at a time, which bounds temporaries to a few MiB.
_VALUES_AT_ONCE = 1 << 18


def dequantize(data: Bytes, tensor_type: TensorType, shape: tuple[int, ...]) -> Floats:
    """Unpack a tensor's bytes into float32 values.

    `data` is (num_bytes,) uint8 and `shape` the tensor's shape in NumPy order; returns a new array of that shape.
    Raises UnsupportedModelError for a type without a rule here, ValueError when `data` is not the size `shape` needs.
    """
    unpack = _UNPACK.get(tensor_type)
    if unpack is None:
        raise UnsupportedModelError(f"tensor type {tensor_type.name} is not supported")
    num_values = int(np.prod(shape, dtype=object))
    blocks = np.ascontiguousarray(data).reshape(-1, tensor_type.block_bytes)  # (num_blocks, block_bytes)
    if len(blocks) * tensor_type.block_size != num_values:
        raise ValueError(
            f"{data.size} bytes of {tensor_type.name} do not hold the {num_values} values of shape {shape}"
        )
    values = np.empty((len(blocks), tensor_type.block_size), np.float32)
    step = max(1, _VALUES_AT_ONCE // tensor_type.block_size)
    # Scales of damaged blocks may be infinite; their values are what arithmetic gives, without a warning.
    with np.errstate(all="ignore"):
        for first in range(0, len(blocks), step):
            values[first : first + step] = unpack(blocks[first : first + step])
    return values.reshape(shape)


def _f32(blocks: Bytes) -> Floats:
    return blocks.view(np.float32)


def _f16(blocks: Bytes) -> Floats:
    return blocks.view(np.float16).astype(np.float32)


def _i32(blocks: Bytes) -> Floats:
    return blocks.view(np.int32).astype(np.float32)  # indices of inputs, far below 2^24


def _bf16(blocks: Bytes) -> Floats:
    return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


_UNPACK: dict[TensorType, Callable[[Bytes], Floats]] = {
    TensorType.F32: _f32,
    TensorType.F16: _f16,
    TensorType.BF16: _bf16,
    TensorType.I32: _i32,
    TensorType.Q4_0: blocks_32.q4_0,
    TensorType.Q4_1: blocks_32.q4_1,
    TensorType.Q5_0: blocks_32.q5_0,
    TensorType.Q5_1: blocks_32.q5_1,
    TensorType.Q8_0: blocks_32.q8_0,
    TensorType.Q2_K: super_blocks.q2_k,
    TensorType.Q3_K: super_blocks.q3_k,
    TensorType.Q4_K: super_blocks.q4_k,
    TensorType.Q5_K: super_blocks.q5_k,
    TensorType.Q6_K: super_blocks.q6_k,
    TensorType.TQ1_0: super_blocks.tq1_0,
    TensorType.TQ2_0: super_blocks.tq2_0,
    TensorType.IQ4_NL: table_blocks.iq4_nl,
    TensorType.IQ4_XS: table_blocks.iq4_xs,
    TensorType.MXFP4: table_blocks.mxfp4,
    TensorType.NVFP4: table_blocks.nvfp4,
    TensorType.IQ1_S: codebook_blocks.iq1_s,
    TensorType.IQ1_M: codebook_blocks.iq1_m,
    TensorType.IQ2_XXS: codebook_blocks.iq2_xxs,
    TensorType.IQ2_XS: codebook_blocks.iq2_xs,
    TensorType.IQ2_S: codebook_blocks.iq2_s,
    TensorType.IQ3_XXS: codebook_blocks.iq3_xxs,
    TensorType.IQ3_S: codebook_blocks.iq3_s,
    **{kind: unpacker(kind) for kind in TensorType if not kind.is_in_gguf},
}
