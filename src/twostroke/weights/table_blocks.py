"""Four-bit indices into sixteen uneven steps: IQ4_NL, IQ4_XS, MXFP4, NVFP4. Owns what their bytes mean.

Sources of the steps: GGML's non-linear table; the OCP Microscaling Formats specification (E2M1, here doubled so that
the steps are integers, and every scale halved).
"""

import numpy as np
import numpy.typing as npt

from twostroke.weights.bit_fields import Bytes, Floats, fields, half, planes, words

_NON_LINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def iq4_nl(blocks: Bytes) -> Floats:
    """32 values: scale, 16 bytes of halves."""
    return half(blocks, 0) * _steps(_NON_LINEAR, planes(blocks[:, 2:], 4, 16)).reshape(-1, 32)


def iq4_xs(blocks: Bytes) -> Floats:
    """256 values: scale, 8 high two bits and 8 low halves of the scales (offset 32) of sub-blocks of 32, values."""
    high = fields(words(blocks[:, 2:4], np.uint16), 2, 8).astype(np.uint8)
    scales = (fields(blocks[:, 4:8], 4, 2) | high << 4).astype(np.int8) - np.int8(32)
    scale = (half(blocks, 0) * scales.astype(np.float32))[:, :, None]  # (num_blocks, 8, 1)
    values: Floats = scale * _steps(_NON_LINEAR, planes(blocks[:, 8:], 4, 16)).reshape(-1, 8, 32)
    return values.reshape(-1, 256)


def mxfp4(blocks: Bytes) -> Floats:
    """32 values: the scale as a power of two (E8M0), 16 bytes of halves."""
    exponent = blocks[:, :1].astype(np.uint32)
    small = np.uint32(0x0020_0000) << (exponent & 1)  # halves of the two smallest powers are subnormal
    scale = np.where(exponent < 2, small, (exponent - 1) << 23).astype(np.uint32).view(np.float32)
    return scale * _steps(_E2M1, planes(blocks[:, 1:], 4, 16)).reshape(-1, 32)


def nvfp4(blocks: Bytes) -> Floats:
    """64 values: four scales in unsigned E4M3, then four times 8 bytes of halves, each of 16 values."""
    scale = _e4m3(blocks[:, :4])[:, :, None] * np.float32(0.5)
    values: Floats = scale * _steps(_E2M1, planes(blocks[:, 4:], 4, 8)).reshape(-1, 4, 16)
    return values.reshape(-1, 64)


def _steps(table: tuple[int, ...], indices: Bytes) -> Floats:
    steps: npt.NDArray[np.float32] = np.array(table, np.float32)
    return steps[indices]


def _e4m3(codes: Bytes) -> Floats:
    """Four bits of exponent (bias 7), three of fraction; the sign is ignored, and 0x7F means 0."""
    exponent, fraction = codes >> 3 & 0x0F, (codes & 7).astype(np.float32)
    normal = (1 + fraction / 8) * np.exp2(exponent.astype(np.float32) - 7)
    values = np.where(exponent == 0, fraction * np.float32(2**-9), normal)
    return np.where(codes == 0x7F, np.float32(0), values)
