"""This engine's own blocks for quantised checkpoints: codes in groups of 32, 64 or 128 with one scale a group.

Owns their layout, packing and meaning. A block is one group, or two of 32 values for the four-bit type: first the
scales (little-endian float16, bfloat16 or float32), for the four-bit type one byte of zeros (the first group's in its
low half), then the codes. Four-bit codes lie as in Q4_0: of each 16 bytes, the low halves are 16 values, the high
halves the next 16. A value is scale * (code - zero) for G4, scale * code for G8 (signed bytes) and F8 (E4M3, no
infinities). The scale has the checkpoint's own precision, so packing loses nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from twostroke.errors import UnsupportedModelError
from twostroke.weights.bit_fields import Bytes, Floats, fields, planes, words
from twostroke.weights.tensor_types import TensorType

Code = Literal["G4", "G8", "F8"]
ScaleType = Literal["F16", "BF16", "F32"]
_SCALES: dict[str, type[np.generic]] = {"F16": np.float16, "BF16": np.uint16, "F32": np.float32}
_GROUPS = (128, 64, 32)


@dataclass(frozen=True, slots=True)
class Groups:
    """A matrix as a checkpoint has it, once its bits are in order.

    `codes` is (rows, cols) uint8; `scales` (rows, num_groups) in the type's own bits (BF16 as uint16); `zeros` the same
    shape in uint8, for G4. A group is `group_size` columns; the last may be shorter.
    """

    codes: Bytes
    scales: npt.NDArray[Any]
    zeros: Bytes | None
    group_size: int


def grouped_type(code: Code, cols: int, group_size: int, scale: str, what: str) -> TensorType:
    """The type with the largest groups that divide both a row of `cols` and the checkpoint's groups.

    Raises UnsupportedModelError, naming `what`, where there is none.
    """
    for group in _GROUPS:
        name = f"{code}_{group}_{scale}"
        kind = TensorType[name] if name in TensorType.__members__ else None
        if kind is not None and cols % kind.block_size == 0 and (group_size % group == 0 or group_size >= cols):
            return kind
    raise UnsupportedModelError(
        f"{what}: groups of {group_size:,} in rows of {cols:,} with {scale} scales are not supported for {code} weights"
    )


def pack(groups: Groups, kind: TensorType) -> Bytes:
    """The blocks of a matrix, (num_bytes,) uint8, row after row."""
    code, group, scale = _format(kind)
    rows, cols = groups.codes.shape
    per_block = kind.block_size // group
    blocks = np.empty((rows * cols // kind.block_size, kind.block_bytes), np.uint8)
    stored = np.arange(0, cols, group) // groups.group_size
    scales = groups.scales[:, stored].reshape(-1, per_block).astype(_SCALES[scale], copy=False)
    first = scales.itemsize * per_block
    blocks[:, :first] = np.ascontiguousarray(scales).view(np.uint8)
    if code == "G4":
        zeros = np.zeros_like(groups.codes[:, stored]) if groups.zeros is None else groups.zeros[:, stored]
        zeros = zeros.reshape(-1, per_block)
        blocks[:, first] = zeros[:, 0] | zeros[:, -1] << 4 if per_block == 2 else zeros[:, 0]
        halves = groups.codes.reshape(len(blocks), -1, 2, 16)
        blocks[:, first + 1 :] = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(len(blocks), -1)
    else:
        blocks[:, first:] = groups.codes.reshape(len(blocks), -1)
    return blocks.ravel()


def unpacker(kind: TensorType) -> Callable[[Bytes], Floats]:
    """The function that turns blocks of a grouped type into values."""
    code, group, scale = _format(kind)
    per_block = kind.block_size // group
    first = np.dtype(_SCALES[scale]).itemsize * per_block

    def unpack(blocks: Bytes) -> Floats:
        factors = _factors(words(blocks[:, :first], _SCALES[scale]))[:, :, None]  # (num_blocks, per_block, 1)
        if code == "G4":
            zeros = fields(blocks[:, first : first + 1], 4, 2)[:, :per_block, None]
            quants = planes(blocks[:, first + 1 :], 4, 16).reshape(len(blocks), per_block, group)
            steps = (quants.astype(np.int8) - zeros.astype(np.int8)).astype(np.float32)
        elif code == "G8":
            steps = blocks[:, first:].view(np.int8).astype(np.float32).reshape(len(blocks), per_block, group)
        else:
            steps = e4m3_values()[blocks[:, first:]].reshape(len(blocks), per_block, group)
        values: Floats = factors * steps
        return values.reshape(len(blocks), -1)

    return unpack


@cache
def e4m3_values() -> Floats:
    """What each byte means in E4M3 without infinities: a sign, four bits of exponent, three of fraction.

    Source: "FP8 formats for deep learning" (Micikevicius et al., 2022). Only 0x7F and 0xFF are not numbers.
    """
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, codes & 7
    size = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    size = np.where(codes & 0x7F == 0x7F, np.nan, size)
    values: Floats = np.where(codes < 128, size, -size).astype(np.float32)
    values.flags.writeable = False
    return values


def _format(kind: TensorType) -> tuple[str, int, str]:
    code, group, scale = kind.name.split("_")
    return code, int(group), scale


def _factors(scales: npt.NDArray[Any]) -> Floats:
    if scales.dtype == np.uint16:
        return (scales.astype(np.uint32) << 16).view(np.float32)
    return scales.astype(np.float32)
