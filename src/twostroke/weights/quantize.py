"""Float32 to packed blocks, in NumPy: a quantiser a type. Owns the packing; what blocks mean is `dequantize`'s.

Scales come from `scale_search`. F16, BF16, Q8_0 and Q4_0 are the format's reference exactly: a search for Q4_0's scales
brings the values closer, but did not bring a model's perplexity down (`benchmarks/quantize_quality.py`).
"""

from collections.abc import Callable
from itertools import product

import numpy as np

from twostroke.errors import UnsupportedModelError
from twostroke.weights.bit_fields import Bytes, Floats, merge_planes
from twostroke.weights.scale_search import Search, affine, folded_sum, symmetric, to_steps
from twostroke.weights.tensor_types import TensorType

# Values are quantised this many at a time, so that the search works in a cache.
_VALUES_AT_ONCE = 1 << 16
# Scales up to this are 0 in float16, and have no inverse in float32.
_TINY = np.float32(1e-38)


def quantizable(tensor_type: TensorType) -> bool:
    """Whether `quantize` knows the type."""
    return tensor_type in _QUANTIZE


def quantize(values: Floats, tensor_type: TensorType) -> Bytes:
    """Pack float32 values, (..., cols) with whole blocks in a row, into (num_bytes,) uint8.

    Raises UnsupportedModelError for a type without a quantiser, ValueError for rows that are not whole blocks and for
    values that are not finite or beyond the type's float16 scales.
    """
    rows = whole_blocks(values, tensor_type)
    packed = np.empty((len(rows), tensor_type.block_bytes), np.uint8)
    step = max(1, _VALUES_AT_ONCE // tensor_type.block_size)
    for first in range(0, len(rows), step):
        packed[first : first + step] = _QUANTIZE[tensor_type](rows[first : first + step])
    return packed.ravel()


def whole_blocks(values: Floats, tensor_type: TensorType) -> Floats:
    """The values a block a row, (num_blocks, block_size), once it is sure that `quantize` can pack them; its errors."""
    if tensor_type not in _QUANTIZE:
        known = ", ".join(kind.name for kind in _QUANTIZE)
        raise UnsupportedModelError(f"no quantiser for {tensor_type.name}; these are: {known}")
    size = tensor_type.block_size
    if values.shape[-1] % size:
        raise ValueError(f"rows of {values.shape[-1]} values are not whole {tensor_type.name} blocks of {size}")
    rows = np.ascontiguousarray(values, np.float32).reshape(-1, size)
    largest = np.finfo(np.float32 if tensor_type in _WIDE else np.float16).max
    if rows.size and not (rows.max() <= largest and rows.min() >= -largest):  # nor where there is a NaN
        raise ValueError(f"values that are not finite or over {largest:g} cannot be {tensor_type.name}")
    return rows


def _f32(blocks: Floats) -> Bytes:
    return blocks.view(np.uint8)


def _f16(blocks: Floats) -> Bytes:
    return blocks.astype(np.float16).view(np.uint8)


def _bf16(blocks: Floats) -> Bytes:
    bits = blocks.view(np.uint32)
    to_nearest_even = (bits + (np.uint32(0x7FFF) + (bits >> 16 & np.uint32(1)))) >> np.uint32(16)
    return to_nearest_even.astype(np.uint16).view(np.uint8)


def _q8_0(blocks: Floats) -> Bytes:
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > _TINY)
    scaled = blocks * inverse
    steps = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))  # halves away from zero, as the reference has it
    return np.concatenate((_halves(scale), steps.astype(np.int8).view(np.uint8)), axis=1)


def _q4_0(blocks: Floats) -> Bytes:
    """The largest value is step -8, exactly; the reference's order of operations."""
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1, keepdims=True), axis=1)
    scale = largest / np.float32(-8)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=np.abs(scale) > _TINY)
    steps = np.minimum(blocks * inverse + np.float32(8.5), np.float32(15)).astype(np.uint8)
    return np.concatenate((_halves(scale), merge_planes(steps, 4, 16)), axis=1)


def _q5_0(blocks: Floats) -> Bytes:
    scale, steps = _unbiased(blocks, 16)
    return np.concatenate((scale, _fifth_bits(steps), merge_planes(steps & np.uint8(15), 4, 16)), axis=1)


def _q4_1(blocks: Floats) -> Bytes:
    scale, minimum = affine(blocks, 15, np.ones_like(blocks), dtype=np.float16)
    steps = to_steps(blocks, scale, 0, 15, minimum).astype(np.uint8)
    return np.concatenate((_halves(scale), _halves(minimum), merge_planes(steps, 4, 16)), axis=1)


def _q5_1(blocks: Floats) -> Bytes:
    scale, minimum = affine(blocks, 31, np.ones_like(blocks), dtype=np.float16)
    steps = to_steps(blocks, scale, 0, 31, minimum).astype(np.uint8)
    packed = (_fifth_bits(steps), merge_planes(steps & np.uint8(15), 4, 16))
    return np.concatenate((_halves(scale), _halves(minimum), *packed), axis=1)


def _q4_k(blocks: Floats) -> Bytes:
    heads, steps = _affine_super_blocks(blocks, 15)
    return np.concatenate((heads, merge_planes(steps, 4, 32)), axis=1)


def _q5_k(blocks: Floats) -> Bytes:
    heads, steps = _affine_super_blocks(blocks, 31)
    high = merge_planes(steps >> np.uint8(4), 1, 32)
    return np.concatenate((heads, high, merge_planes(steps & np.uint8(15), 4, 32)), axis=1)


def _q6_k(blocks: Floats) -> Bytes:
    values = blocks.reshape(-1, 16)
    scales = symmetric(values, 32, values * values).reshape(-1, 16)
    largest = np.take_along_axis(scales, np.abs(scales).argmax(axis=1, keepdims=True), axis=1)
    scale = _as_half(largest / np.float32(-128))
    small = to_steps(scales, scale, -128, 127)  # (num_blocks, 16)
    steps = to_steps(values, (scale * small).reshape(-1, 1), -32, 31).reshape(-1, 256)
    codes = (steps + np.float32(32)).astype(np.uint8)
    packed = (merge_planes(codes & np.uint8(15), 4, 64), merge_planes(codes >> np.uint8(4), 2, 32))
    return np.concatenate((*packed, small.astype(np.int8).view(np.uint8), _halves(scale)), axis=1)


def _unbiased(blocks: Floats, levels: int) -> tuple[Bytes, Bytes]:
    """The scales' bytes and the steps, offset by `levels`, of blocks with a scale only.

    A scale of least squares makes a block shorter than it was, by the share of its error, and so a layer's outputs
    weaker. Hence the nearest steps are kept, with the scale at which they are in the mean as long as the values.
    """
    scale = symmetric(blocks, levels, np.ones_like(blocks))
    steps = to_steps(blocks, scale, -levels, levels - 1)
    square, product_sum = folded_sum(blocks * blocks), folded_sum(blocks * steps)
    scale = np.divide(square, product_sum, out=np.zeros_like(square), where=product_sum != 0)
    return _halves(scale), (steps + np.float32(levels)).astype(np.uint8)


def _affine_super_blocks(blocks: Floats, top: int) -> tuple[Bytes, Bytes]:
    """The 16 bytes of scales of Q4_K and Q5_K, and the steps, (num_blocks, 256)."""
    values = blocks.reshape(-1, 32)
    weights = np.sqrt(folded_sum(values * values) / np.float32(32)) + np.abs(values)
    scales, minimums = affine(values, top, weights, at_most_zero=True)
    scales, minimums = scales.reshape(-1, 8), np.float32(0) - minimums.reshape(-1, 8)  # no zero with a sign
    scale = _as_half(scales.max(axis=1, keepdims=True) / np.float32(63))
    scale_of_minimums = _as_half(minimums.max(axis=1, keepdims=True) / np.float32(63))
    small, small_minimums = to_steps(scales, scale, 0, 63), to_steps(minimums, scale_of_minimums, 0, 63)
    search = Search(values, weights)
    for up, up_minimum in product((0, -1, 1), repeat=2):
        used = scale * np.clip(small + np.float32(up), 0, 63)
        used_minimums = scale_of_minimums * np.clip(small_minimums + np.float32(up_minimum), 0, 63)
        search.consider(used.reshape(-1, 1), -used_minimums.reshape(-1, 1), 0, top)
    small = to_steps(search.scale.reshape(-1, 8), scale, 0, 63)
    small_minimums = to_steps(-search.minimum.reshape(-1, 8), scale_of_minimums, 0, 63)
    steps = to_steps(values, search.scale, 0, top, search.minimum).astype(np.uint8)
    six_bits = _six_bits(small.astype(np.uint8), small_minimums.astype(np.uint8))
    return np.concatenate((_halves(scale), _halves(scale_of_minimums), six_bits), axis=1), steps.reshape(-1, 256)


def _six_bits(scales: Bytes, minimums: Bytes) -> Bytes:
    """Eight scales and eight minimums in twelve bytes; see `super_blocks`."""
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = minimums[:, :4] | minimums[:, 4:] >> 4 << 6
    return np.concatenate((first, second, scales[:, 4:] & 15 | minimums[:, 4:] << 4), axis=1)


def _fifth_bits(steps: Bytes) -> Bytes:
    return merge_planes(steps >> np.uint8(4), 1, 1)


def _halves(values: Floats) -> Bytes:
    return values.astype(np.float16).view(np.uint8)


def _as_half(values: Floats) -> Floats:
    return values.astype(np.float16).astype(np.float32)


_WIDE = (TensorType.F32, TensorType.BF16)  # their range is float32's
_QUANTIZE: dict[TensorType, Callable[[Floats], Bytes]] = {
    TensorType.F32: _f32,
    TensorType.F16: _f16,
    TensorType.BF16: _bf16,
    TensorType.Q4_0: _q4_0,
    TensorType.Q4_1: _q4_1,
    TensorType.Q5_0: _q5_0,
    TensorType.Q5_1: _q5_1,
    TensorType.Q8_0: _q8_0,
    TensorType.Q4_K: _q4_k,
    TensorType.Q5_K: _q5_k,
    TensorType.Q6_K: _q6_k,
}
