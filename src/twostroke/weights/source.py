"""What a model's weights look like to the rest of the engine, whatever file they come from. Owns no format."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from twostroke.weights.tensor_types import TensorType


class TensorInfo(NamedTuple):
    """Where a tensor lies and how it is stored.

    `shape` is in NumPy order, the contiguous dimension last: (rows, cols) for the matrix of a linear layer with `rows`
    outputs and `cols` inputs. `offset` is absolute in the file; `num_bytes` is the size of the packed blocks.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    num_bytes: int

    @property
    def num_values(self) -> int:
        """Number of weights."""
        count = 1
        for dim in self.shape:
            count *= dim
        return count


class WeightSource(Protocol):
    """Named packed tensors. `GGUFFile` is one."""

    @property
    def names(self) -> Iterable[str]:
        """Tensor names, in file order."""

    def info(self, name: str) -> TensorInfo:
        """Shape, type and size of a tensor. Raises ModelFileError when there is none of that name."""

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        """The tensor's packed bytes, (num_bytes,) uint8, read-only."""

    def release(self, name: str) -> None:
        """Give the tensor's pages back to the system; `data` still works and reads them again."""
