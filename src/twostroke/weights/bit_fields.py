"""How packed blocks are taken apart: the few bit layouts that all block formats share. Owns no format.

`blocks` is (num_blocks, block_bytes) uint8 throughout, one block a row.
"""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
_Number = TypeVar("_Number", bound=np.generic)
_Word = TypeVar("_Word", np.uint8, np.uint16, np.uint32)


def half(blocks: Bytes, first: int) -> Floats:
    """The float16 at byte `first` of each block, (num_blocks, 1)."""
    return words(blocks[:, first : first + 2], np.float16).astype(np.float32)


def words(packed: Bytes, dtype: type[_Number]) -> npt.NDArray[_Number]:
    """Bytes as words of `dtype`: (num_blocks, n) to (num_blocks, n / word size)."""
    return np.ascontiguousarray(packed).view(dtype)


def planes(packed: Bytes, bits: int, run: int) -> Bytes:
    """Split each `run` bytes into their lowest `bits`, then the next, and so on up to the highest.

    (num_blocks, n) to (num_blocks, n / run * 8 / bits, run): value j of plane i comes from byte j of its run.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    split: Bytes = packed.reshape(len(packed), -1, 1, run) >> shifts & np.uint8((1 << bits) - 1)
    return split.reshape(len(packed), -1, run)


def fields(packed: npt.NDArray[_Word], bits: int, count: int) -> npt.NDArray[_Word]:
    """The lowest `count` fields of `bits` in each word, lowest first: (num_blocks, n) to (num_blocks, n * count)."""
    word = packed.dtype.type
    shifts = np.arange(0, bits * count, bits).astype(packed.dtype)
    split: npt.NDArray[_Word] = packed[:, :, None] >> shifts & word((1 << bits) - 1)
    return split.reshape(len(packed), -1)


def merge_planes(values: Bytes, bits: int, run: int) -> Bytes:
    """The inverse of `planes`: (num_blocks, n) values of `bits` to (num_blocks, n * bits / 8)."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    split = values.reshape(len(values), -1, 8 // bits, run) << shifts
    merged: Bytes = np.bitwise_or.reduce(split, axis=2)
    return merged.reshape(len(values), -1)
