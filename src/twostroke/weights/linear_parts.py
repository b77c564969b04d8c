"""The raw tensors that make one quantised linear of a checkpoint. Owns their checking; no layout (see `linears`)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.weights.bit_fields import Bytes
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.safetensors_header import RawTensor

WORDS = ("I32", "U32")
SCALES = ("F16", "BF16", "F32")


@dataclass(frozen=True, slots=True)
class LinearParts:
    """The tensors of a checkpoint whose names are `prefix` and then NAME. Messages name them in full."""

    checkpoint: Checkpoint
    prefix: str

    def full(self, name: str) -> str:
        return self.prefix + name

    def __contains__(self, name: str) -> bool:
        return self.full(name) in self.checkpoint.tensors

    def array(self, name: str) -> npt.NDArray[Any]:
        """The tensor, a view; BF16 as uint16."""
        return self.checkpoint.array(self.full(name))

    def raw(self, name: str, dtypes: tuple[str, ...]) -> RawTensor:
        """The tensor's header entry. Raises ModelFileError when it is missing, UnsupportedModelError for its dtype."""
        raw = self.checkpoint.raw(self.full(name))
        if raw.dtype not in dtypes:
            known = " or ".join(dtypes)
            raise UnsupportedModelError(
                f"{self.checkpoint.path}: tensor {raw.name!r} has dtype {raw.dtype}, not {known}"
            )
        return raw

    def matrix(self, name: str, dtypes: tuple[str, ...]) -> tuple[int, int]:
        """The shape of a tensor with two dimensions."""
        raw = self.raw(name, dtypes)
        if len(raw.shape) != 2 or 0 in raw.shape:
            raise ModelFileError(
                f"{self.checkpoint.path}: tensor {raw.name!r} has shape {list(raw.shape)}, not two dimensions"
            )
        return raw.shape[0], raw.shape[1]

    def expect(self, name: str, dtypes: tuple[str, ...], *shapes: tuple[int, ...]) -> str:
        """Check a tensor against what its linear needs; returns its dtype."""
        raw = self.raw(name, dtypes)
        if raw.shape not in shapes:
            raise ModelFileError(
                f"{self.checkpoint.path}: tensor {raw.name!r} has shape {list(raw.shape)}, not {list(shapes[0])}"
            )
        return raw.dtype

    def input_order(self, name: str, cols: int, group_size: int) -> npt.NDArray[np.int32] | None:
        """The inputs sorted by the group that tensor `name` puts each in, (cols,) int32; None where they already are.

        Raises ModelFileError when the groups are not all of `group_size` inputs.
        """
        if name not in self:
            return None
        self.expect(name, ("I32", "I64"), (cols,))
        group_of, expected = self.array(name), np.arange(cols) // group_size
        if np.array_equal(group_of, expected):
            return None
        order = np.argsort(group_of, kind="stable").astype(np.int32)
        if not np.array_equal(group_of[order], expected):
            name = self.full(name)
            raise ModelFileError(
                f"{self.checkpoint.path}: tensor {name!r} does not give {group_size:,} inputs to each group"
            )
        return order


def fields_across(packed: npt.NDArray[Any], bits: int, order: tuple[int, ...] | None = None) -> Bytes:
    """Unpack 32-bit words along a row: (rows, n) to (rows, n * 32 / bits), the lowest bits first.

    With `order`, the field at position i of a word is its value number `order[i]`.
    """
    codes, count = np.ascontiguousarray(packed).view(np.uint8), 32 // bits
    if bits == 8:
        return codes
    values = np.empty((len(codes), packed.shape[1], count), np.uint8)
    for position, number in enumerate(order or range(count)):
        values[:, :, number] = codes[:, position // 2 :: 4] >> np.uint8(4 * (position % 2)) & np.uint8(15)
    return values.reshape(len(codes), -1)


def fields_down(packed: npt.NDArray[Any], bits: int) -> Bytes:
    """Unpack 32-bit words along a column: (n, cols) to (n * 32 / bits, cols), the lowest bits first."""
    return np.ascontiguousarray(fields_across(packed.T, bits).T)
