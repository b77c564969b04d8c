"""Super-blocks of 256 values, uniform steps: Q2_K to Q6_K, TQ1_0 and TQ2_0. Owns what their bytes mean.

A K super-block has float16 scales over small integer scales, one a sub-block of 16 or 32 values. Values lie in bit
planes: of a run of bytes, the lowest bits are the first values, the next bits those that follow.
"""

import numpy as np

from twostroke.weights.bit_fields import Bytes, Floats, half, planes


def q2_k(blocks: Bytes) -> Floats:
    """16 bytes of scale and minimum (low and high half), 64 of values, scale, scale of the minimums."""
    scales = half(blocks, 80) * (blocks[:, :16] & 0x0F).astype(np.float32)
    minimums = half(blocks, 82) * (blocks[:, :16] >> 4).astype(np.float32)
    return _affine(planes(blocks[:, 16:80], 2, 32), scales, minimums)


def q3_k(blocks: Bytes) -> Floats:
    """32 bytes of high bits, 64 of low two bits, 12 of 6-bit scales (offset 32), scale; values have offset 4.

    The scales' low halves are the planes of 8 bytes, their high two bits those of the 4 that follow.
    """
    low, high = planes(blocks[:, 96:104], 4, 8), planes(blocks[:, 104:108], 2, 4)
    scales = (low.reshape(-1, 16) | high.reshape(-1, 16) << 4).astype(np.int8) - np.int8(32)
    quants = planes(blocks[:, 32:96], 2, 32) | planes(blocks[:, :32], 1, 32) << 2
    return _linear(quants.astype(np.int8) - np.int8(4), half(blocks, 108) * scales.astype(np.float32))


def q4_k(blocks: Bytes) -> Floats:
    """Scale, scale of the minimums, 12 bytes of 6-bit scales and minimums, 128 of values."""
    return _affine(planes(blocks[:, 16:], 4, 32), *_scales_and_minimums(blocks))


def q5_k(blocks: Bytes) -> Floats:
    """As Q4_K, with 32 bytes of high bits before the values."""
    quants = planes(blocks[:, 48:], 4, 32) | planes(blocks[:, 16:48], 1, 32) << np.uint8(4)
    return _affine(quants, *_scales_and_minimums(blocks))


def q6_k(blocks: Bytes) -> Floats:
    """128 bytes of low halves, 64 of high two bits, 16 signed scales, scale; values have offset 32."""
    low = planes(blocks[:, :128], 4, 64).reshape(-1, 256)
    quants = (low | planes(blocks[:, 128:192], 2, 32).reshape(-1, 256) << 4).astype(np.int8) - np.int8(32)
    return _linear(quants, half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32))


def tq1_0(blocks: Bytes) -> Floats:
    """48 bytes of five base-3 digits, 4 of four, scale. A byte is the fraction of 256 that has these digits."""
    stretches = ((blocks[:, :32], 5), (blocks[:, 32:48], 5), (blocks[:, 48:52], 4))
    digits = [
        (packed[:, None] * (3 ** np.arange(count)).astype(np.uint8)[:, None]).reshape(len(blocks), -1)
        for packed, count in stretches
    ]
    trits = (np.concatenate(digits, axis=1).astype(np.uint16) * 3 >> 8).astype(np.int8) - np.int8(1)
    return half(blocks, 52) * trits.astype(np.float32)


def tq2_0(blocks: Bytes) -> Floats:
    """64 bytes of two-bit values, scale; offset 1."""
    trits = planes(blocks[:, :64], 2, 32).astype(np.int8) - np.int8(1)
    return half(blocks, 64) * trits.reshape(-1, 256).astype(np.float32)


def _scales_and_minimums(blocks: Bytes) -> tuple[Floats, Floats]:
    """Eight scales and eight minimums of Q4_K and Q5_K, from bytes 0-15.

    Of the twelve bytes, the first four scales and minimums are the low six bits of bytes 0-3 and 4-7; the last four are
    the halves of bytes 8-11, topped by the high two bits of bytes 0-3 and 4-7.
    """
    low_scale, low_min, halves = (blocks[:, first : first + 4] for first in (4, 8, 12))
    scales = np.concatenate((low_scale & 0x3F, (halves & 0x0F) | (low_scale >> 6 << 4)), axis=1)
    minimums = np.concatenate((low_min & 0x3F, (halves >> 4) | (low_min >> 6 << 4)), axis=1)
    return half(blocks, 0) * scales.astype(np.float32), half(blocks, 2) * minimums.astype(np.float32)


def _affine(quants: Bytes, scales: Floats, minimums: Floats) -> Floats:
    """scale * quant - minimum, for (num_blocks, num_sub_blocks) scales and minimums."""
    grouped = quants.reshape(*scales.shape, -1).astype(np.float32)
    values: Floats = scales[:, :, None] * grouped - minimums[:, :, None]
    return values.reshape(len(scales), 256)


def _linear(quants: np.ndarray[tuple[int, ...], np.dtype[np.int8]], scales: Floats) -> Floats:
    """scale * quant, for (num_blocks, num_sub_blocks) scales."""
    values: Floats = scales[:, :, None] * quants.reshape(*scales.shape, -1).astype(np.float32)
    return values.reshape(len(scales), 256)
