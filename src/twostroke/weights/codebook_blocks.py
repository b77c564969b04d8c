"""Super-blocks of 256 values that are codebook entries: IQ1, IQ2 and IQ3 kinds. Owns what their bytes mean.

Each index names a codebook entry of 4 or 8 values; a scale a sub-block, and (IQ2, IQ3) a sign a value. `_7` signs:
seven bits are stored, the eighth makes the number of minus signs even.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.weights.bit_fields import Bytes, Floats, fields, half, words
from twostroke.weights.codebooks import codebook

Codes = npt.NDArray[np.integer[Any]]

_IQ1_DELTA = np.float32(0.125)


def iq2_xxs(blocks: Bytes) -> Floats:
    """Scale, then per 32 values: 4 indices, and a word of 4 sign sevens and the sub-block's scale (top four bits)."""
    pairs = words(blocks[:, 2:], np.uint32).reshape(len(blocks), 8, 2)
    heads = pairs[:, :, 1]
    scales = half(blocks, 0) * (np.float32(0.5) + (heads >> 28).astype(np.float32)) * np.float32(0.25)
    indices = np.ascontiguousarray(pairs[:, :, 0]).view(np.uint8)
    return _signed("iq2_xxs", indices, scales, _signs_7(fields(heads, 7, 4)))


def iq2_xs(blocks: Bytes) -> Floats:
    """Scale, 32 words of an index (low nine bits) and a sign seven, 16 half-byte scales."""
    codes = words(blocks[:, 2:66], np.uint16)
    scales = half(blocks, 0) * (np.float32(0.5) + fields(blocks[:, 66:], 4, 2)) * np.float32(0.25)
    return _signed("iq2_xs", codes & np.uint16(511), scales, _signs_7(codes >> 9))


def iq2_s(blocks: Bytes) -> Floats:
    """Scale, 32 low bytes of indices, 32 of signs, 8 of two high bits of indices, 16 half-byte scales."""
    indices = blocks[:, 2:34] | fields(blocks[:, 66:74], 2, 4).astype(np.uint16) << 8
    scales = half(blocks, 0) * (np.float32(0.5) + fields(blocks[:, 74:], 4, 2)) * np.float32(0.25)
    return _signed("iq2_s", indices, scales, blocks[:, 34:66])


def iq3_xxs(blocks: Bytes) -> Floats:
    """Scale, 64 indices, 8 words of 4 sign sevens and the sub-block's scale (top four bits)."""
    heads = words(blocks[:, 66:], np.uint32)
    scales = half(blocks, 0) * (np.float32(0.5) + (heads >> 28).astype(np.float32)) * np.float32(0.5)
    return _signed("iq3_xxs", blocks[:, 2:66], scales, _signs_7(fields(heads, 7, 4)))


def iq3_s(blocks: Bytes) -> Floats:
    """Scale, 64 low bytes of indices, 64 ninth bits, 32 bytes of signs, 8 half-byte scales."""
    indices = blocks[:, 2:66] | fields(blocks[:, 66:74], 1, 8).astype(np.uint16) << 8
    scales = half(blocks, 0) * (1 + 2 * fields(blocks[:, 106:], 4, 2))
    return _signed("iq3_s", indices, scales, blocks[:, 74:106])


def iq1_s(blocks: Bytes) -> Floats:
    """Scale, 32 low bytes of indices, per 32 values a word: 4 times three high bits, the scale, the shift's sign."""
    heads = words(blocks[:, 34:], np.uint16)
    indices = blocks[:, 2:34] | fields(heads, 3, 4) << 8
    scales = half(blocks, 0) * (2 * (heads >> 12 & 7) + 1)
    return _shifted(indices, scales, np.repeat(heads >> 15, 4, axis=1))


def iq1_m(blocks: Bytes) -> Floats:
    """32 low bytes of indices, 16 of halves (three high bits, the shift's sign), 4 words of four three-bit scales.

    The scale's own float16 is in the top four bits of these words, the lowest part first.
    """
    heads, tops = fields(blocks[:, 32:48], 4, 2), words(blocks[:, 48:], np.uint16)
    parts = tops >> 12 << np.array([0, 4, 8, 12], np.uint16)
    scale = np.bitwise_or.reduce(parts, axis=1, keepdims=True).view(np.float16).astype(np.float32)
    indices = blocks[:, :32] | (heads & 7).astype(np.uint16) << 8
    return _shifted(indices, scale * (2 * fields(tops, 3, 4) + 1), heads >> 3)


def _signs_7(sevens: Codes) -> Bytes:
    """Bytes of signs from their low seven bits, with even parity."""
    low = sevens.astype(np.uint8)
    parity = low ^ low >> np.uint8(4)
    parity ^= parity >> np.uint8(2)
    parity ^= parity >> np.uint8(1)
    return low | parity << np.uint8(7)


def _signed(name: str, indices: Codes, scales: Floats, signs: Bytes) -> Floats:
    """scale * entry * sign, for (num_blocks, num_sub_blocks) scales and one bit of `signs` a value."""
    entries = codebook(name)[indices].reshape(*scales.shape, -1)
    minus = fields(signs, 1, 8).reshape(entries.shape).astype(bool)
    values: Floats = scales[:, :, None] * entries * np.where(minus, np.float32(-1), np.float32(1))
    return values.reshape(len(scales), 256)


def _shifted(indices: Codes, scales: Floats, minus: Codes) -> Floats:
    """scale * (entry +- 1/8), for (num_blocks, num_sub_blocks) scales and one sign an entry of 8 values."""
    shifts = np.where(minus.astype(bool), -_IQ1_DELTA, _IQ1_DELTA)[:, :, None]
    entries: Floats = codebook("iq1")[indices] + shifts  # (num_blocks, 32, 8)
    values: Floats = scales[:, :, None] * entries.reshape(*scales.shape, -1)
    return values.reshape(len(scales), 256)
