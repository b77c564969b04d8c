"""Tensors that are parts of stored ones: q, k and v in one matrix, gate and up in one, experts transposed.

Owns how a part is cut out of its bytes: `PartSource` gives parts beside whole tensors. What a part is says `part`,
which of them a family has `fused`. Values are never changed, only chosen and put in order.
"""

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.part import Part
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.source import TensorInfo

if TYPE_CHECKING:
    from twostroke.weights.checkpoint_weights import CheckpointWeights


class PartSource:
    """A `WeightSource` over another, whose tensors the names in `parts` are parts of. Closing it closes the other."""

    def __init__(self, source: "GGUFFile | CheckpointWeights", parts: Mapping[str, Part]) -> None:
        self._source = source
        self._parts = parts
        self.tensors = {name: info for name, info in source.tensors.items() if name not in self._stored()}
        self.tensors |= {name: self._describe(name, part) for name, part in parts.items()}

    @property
    def path(self) -> Path:
        return self._source.path

    @property
    def num_bytes(self) -> int:
        """Size of the weight files."""
        return self._source.num_bytes

    @property
    def names(self) -> Iterable[str]:
        """Names of whole tensors and of parts."""
        return self.tensors.keys()

    def info(self, name: str) -> TensorInfo:
        """Shape, type and size of a tensor or part. Raises ModelFileError when there is none of that name."""
        return self.tensors[name] if name in self.tensors else self._source.info(name)

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        """Packed bytes, (num_bytes,) uint8: a view where the part is one stretch of its tensor, else a copy."""
        part = self._parts.get(name)
        if part is None:
            return self._source.data(name)
        stored, data = self._source.info(part.tensor), self._source.data(part.tensor)
        if part.transposed:
            size = stored.type.row_bytes(1)
            matrices = data.reshape(*stored.shape, size)
            data = np.ascontiguousarray(np.swapaxes(matrices, -3, -2)).reshape(-1)
        return data.reshape(*part.view, -1)[part.index].reshape(-1)

    @property
    def input_orders(self) -> Mapping[str, str]:
        """Names of matrices whose inputs are in an order of its own, and of the tensor with the order."""
        orders = {} if isinstance(self._source, GGUFFile) else self._source.input_orders
        return {
            **{name: order for name, order in orders.items() if name not in self._stored()},
            **{name: orders[part.tensor] for name, part in self._parts.items() if part.tensor in orders},
        }

    def release(self, name: str) -> None:
        """Give the pages back to the system, of all parts of the stored tensor; `data` still works."""
        part = self._parts.get(name)
        self._source.release(name if part is None else part.tensor)

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _stored(self) -> set[str]:
        return {part.tensor for part in self._parts.values()}

    def _describe(self, name: str, part: Part) -> TensorInfo:
        info = self._source.info(part.tensor)
        shape = info.shape
        if part.transposed:
            if len(shape) < 2 or info.type.block_size != 1:
                raise UnsupportedModelError(f"tensor {part.tensor!r} of type {info.type.name} cannot be transposed")
            shape = (*shape[:-2], shape[-1], shape[-2])
        if part.vectors:
            shape = (*shape, 1)
        whole = prod(shape[:-1]) == prod(part.view)
        if not whole or part.num_rows * shape[-1] != prod(part.shape):
            raise ModelFileError(
                f"tensor {part.tensor!r} has shape {list(info.shape)}, of which {name!r} {list(part.shape)} is no part"
            )
        return TensorInfo(name, part.shape, info.type, 0, info.type.row_bytes(prod(part.shape)))
