"""Blocks of 32 values, uniform steps: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. Owns what their bytes mean.

A block is a float16 scale, for the `_1` types a float16 minimum, for five bits a word of 32 high bits, then the
values; of four-bit halves, the low ones of 16 bytes are values 0-15, the high ones 16-31.
"""

import numpy as np

from twostroke.weights.bit_fields import Bytes, Floats, fields, half, planes


def q4_0(blocks: Bytes) -> Floats:
    """Scale, 16 bytes of halves; offset 8."""
    return half(blocks, 0) * _centred(_low(blocks, 2), 8)


def q4_1(blocks: Bytes) -> Floats:
    """Scale, minimum, 16 bytes of halves."""
    return half(blocks, 0) * _low(blocks, 4).astype(np.float32) + half(blocks, 2)


def q5_0(blocks: Bytes) -> Floats:
    """Scale, 32 high bits, 16 bytes of halves; offset 16."""
    return half(blocks, 0) * _centred(_low(blocks, 6) | _high(blocks, 2), 16)


def q5_1(blocks: Bytes) -> Floats:
    """Scale, minimum, 32 high bits, 16 bytes of halves."""
    return half(blocks, 0) * (_low(blocks, 8) | _high(blocks, 4)).astype(np.float32) + half(blocks, 2)


def q8_0(blocks: Bytes) -> Floats:
    """Scale, 32 signed bytes."""
    return blocks[:, 2:].view(np.int8).astype(np.float32) * half(blocks, 0)


def _low(blocks: Bytes, first: int) -> Bytes:
    return planes(blocks[:, first : first + 16], 4, 16).reshape(-1, 32)


def _high(blocks: Bytes, first: int) -> Bytes:
    return fields(blocks[:, first : first + 4], 1, 8) << np.uint8(4)


def _centred(quants: Bytes, offset: int) -> Floats:
    return (quants.astype(np.int8) - np.int8(offset)).astype(np.float32)
