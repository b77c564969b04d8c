"""Packed blocks to float32, in NumPy: the meaning of each tensor type. Owns no speed; the native kernels read blocks.

Each product and sum is rounded to float32 in the order the format's reference gives, so results are its bits exactly.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from twostroke.errors import UnsupportedModelError
from twostroke.weights.tensor_types import TensorType

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

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


def _half(blocks: Bytes, first: int) -> Floats:
    """The float16 at byte `first` of each block, (num_blocks, 1)."""
    return blocks[:, first : first + 2].copy().view(np.float16).astype(np.float32)


def _nibbles(packed: Bytes, run: int) -> Bytes:
    """Split each `run` bytes into their low, then their high halves: (num_blocks, n) to (num_blocks, 2n / run, run)."""
    pairs = packed.reshape(len(packed), -1, 1, run)
    return np.concatenate((pairs & 0x0F, pairs >> 4), axis=2).reshape(len(packed), -1, run)


def _f32(blocks: Bytes) -> Floats:
    return blocks.view(np.float32)


def _f16(blocks: Bytes) -> Floats:
    return blocks.view(np.float16).astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _q4_1(blocks: Bytes) -> Floats:
    scale, minimum = _half(blocks, 0), _half(blocks, 2)
    quants = _nibbles(blocks[:, 4:], 16).reshape(len(blocks), 32).astype(np.float32)
    return scale * quants + minimum


def _q8_0(blocks: Bytes) -> Floats:
    return blocks[:, 2:].view(np.int8).astype(np.float32) * _half(blocks, 0)


def _q4_k(blocks: Bytes) -> Floats:
    # 8 sub-blocks of 32. Twelve bytes hold 8 six-bit scales and 8 six-bit minimums: the first four of each are the low
    # bits of bytes 0-3 and 4-7; the last four the nibbles of bytes 8-11, topped by bits 6-7 of bytes 0-3 and 4-7.
    low_scale, low_min, nibbles = (blocks[:, first : first + 4] for first in (4, 8, 12))
    scales = np.concatenate((low_scale & 0x3F, (nibbles & 0x0F) | (low_scale >> 6 << 4)), axis=1)
    minimums = np.concatenate((low_min & 0x3F, (nibbles >> 4) | (low_min >> 6 << 4)), axis=1)
    scale = (_half(blocks, 0) * scales.astype(np.float32))[:, :, None]  # (num_blocks, 8, 1)
    minimum = (_half(blocks, 2) * minimums.astype(np.float32))[:, :, None]
    quants = _nibbles(blocks[:, 16:], 32).astype(np.float32)  # (num_blocks, 8, 32)
    return (scale * quants - minimum).reshape(len(blocks), 256)


def _q6_k(blocks: Bytes) -> Floats:
    # 16 sub-blocks of 16; the low four bits of each value come as nibbles, the high two packed four to a byte.
    low = _nibbles(blocks[:, :128], 64).reshape(len(blocks), 256)
    pairs = blocks[:, 128:192].reshape(len(blocks), 2, 32)
    high = np.stack([pairs >> shift & 3 for shift in (0, 2, 4, 6)], axis=2).reshape(len(blocks), 256)
    quants = (low | (high << 4)).astype(np.int8) - np.int8(32)
    scale = _half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)  # (num_blocks, 16)
    values: Floats = scale[:, :, None] * quants.reshape(len(blocks), 16, 16).astype(np.float32)
    return values.reshape(len(blocks), 256)


_UNPACK: dict[TensorType, Callable[[Bytes], Floats]] = {
    TensorType.F32: _f32,
    TensorType.F16: _f16,
    TensorType.BF16: _bf16,
    TensorType.Q4_1: _q4_1,
    TensorType.Q8_0: _q8_0,
    TensorType.Q4_K: _q4_k,
    TensorType.Q6_K: _q6_k,
}
