"""A checkpoint under a model's canonical tensor names: a `WeightSource`. Owns the adaptation; names come from a family.

A matrix keeps its numbers: F32, F16 and BF16 as they are, a quantised linear packed into a grouped type that holds the
same values. Vectors (norms, biases, those of experts too) are widened to F32, which is exact.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, TwostrokeError, UnsupportedModelError
from twostroke.weights.checkpoint import CONFIG, Checkpoint
from twostroke.weights.dequantize import dequantize
from twostroke.weights.linear_parts import LinearParts
from twostroke.weights.linears import QuantizedLinear, find_linear
from twostroke.weights.quantization_config import Quantization, read_quantization
from twostroke.weights.source import TensorInfo
from twostroke.weights.tensor_types import TensorType

_PLAIN = {"F32": TensorType.F32, "F16": TensorType.F16, "BF16": TensorType.BF16}
_WEIGHT = ".weight"

Piece = tuple[str, QuantizedLinear | None]  # a raw name, and the linear it stands for where that is quantised


class CheckpointWeights:
    """Canonical tensors of a checkpoint. Closing the checkpoint closes them.

    `names_of` gives for each canonical name the checkpoint's name (for a quantised linear, as if it had a plain
    `.weight`), or a tuple of names of equal tensors that are stacked along a new first dimension, as experts are.
    Offsets are 0 in `tensors`, since a tensor need not lie in the file as it is given. `unused` are the raw tensors
    that no canonical one needs.

    Where a checkpoint has sorted a matrix's columns by activation, `input_orders` names the tensor, (cols,) I32, of the
    input that each column multiplies; equal orders are one tensor.

    Raises ModelFileError for a tensor that is missing or of another shape than its fellows, UnsupportedModelError for a
    quantisation or dtype that is not run.
    """

    def __init__(self, checkpoint: Checkpoint, names_of: Mapping[str, str | tuple[str, ...]]) -> None:
        self._checkpoint = checkpoint
        self._quantization = _quantization(checkpoint)
        self._pieces: dict[str, tuple[Piece, ...]] = {}
        self._orders: dict[str, npt.NDArray[np.int32]] = {}
        self.input_orders: dict[str, str] = {}
        self.tensors: dict[str, TensorInfo] = {}
        for name, raw_names in names_of.items():
            stacked = isinstance(raw_names, tuple)
            self._pieces[name] = tuple(map(self._piece, raw_names if isinstance(raw_names, tuple) else (raw_names,)))
            self.tensors[name] = self._describe(name, stacked)
            self._find_order(name)
        used = {raw for pieces in self._pieces.values() for piece in pieces for raw in _raw_names(piece)}
        self.unused = tuple(name for name in checkpoint.tensors if name not in used)

    @property
    def path(self) -> Path:
        """The model's directory."""
        return self._checkpoint.path

    @property
    def num_bytes(self) -> int:
        """Size of the weight files."""
        return self._checkpoint.num_bytes

    @property
    def names(self) -> Iterable[str]:
        """Canonical names, in the order given."""
        return self.tensors.keys()

    def info(self, name: str) -> TensorInfo:
        """Shape, type and size of a tensor. Raises ModelFileError when there is none of that name."""
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelFileError(f"{self.path}: tensor {name!r} is missing") from None

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        """The tensor's packed bytes, (num_bytes,) uint8: a view of the file, or packed anew at each call."""
        info = self.info(name)
        if name in self._orders:
            return self._orders[name].view(np.uint8)
        parts = [self._bytes(piece, info.type) for piece in self._pieces[name]]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def release(self, name: str) -> None:
        """Give the tensor's pages back to the system; `data` still works and reads them again."""
        for piece in self._pieces.get(name, ()):
            for raw in _raw_names(piece):
                self._checkpoint.release(raw)

    def close(self) -> None:
        """Close the checkpoint."""
        self._checkpoint.close()

    def _piece(self, raw_name: str) -> Piece:
        if self._quantization is None:
            return raw_name, None
        if self._quantization.layout == "mxfp4":
            return raw_name, find_linear(LinearParts(self._checkpoint, f"{raw_name}_"), self._quantization)
        if not raw_name.endswith(_WEIGHT):
            return raw_name, None
        parts = LinearParts(self._checkpoint, raw_name.removesuffix(_WEIGHT) + ".")
        return raw_name, find_linear(parts, self._quantization)

    def _find_order(self, name: str) -> None:
        """Note the order of a matrix's inputs where it has one of its own."""
        orders = [linear.input_order() for _, linear in self._pieces[name] if linear is not None]
        if all(order is None for order in orders):
            return
        if len(orders) > 1 or orders[0] is None:
            raise UnsupportedModelError(f"tensor {name!r} stacks matrices whose inputs are in orders of their own")
        for known, order in self._orders.items():
            if np.array_equal(order, orders[0]):
                self.input_orders[name] = known
                return
        full = name.removesuffix(_WEIGHT) + ".input_order"
        self.input_orders[name], self._orders[full] = full, orders[0]
        self.tensors[full] = TensorInfo(full, orders[0].shape, TensorType.I32, 0, orders[0].nbytes)

    def _describe(self, name: str, stacked: bool) -> TensorInfo:
        found = {self._type_and_shape(piece) for piece in self._pieces[name]}
        if len(found) != 1:
            raise ModelFileError(f"{self.path}: the tensors stacked as {name!r} differ in type or shape")
        ((kind, shape),) = found
        full = (len(self._pieces[name]), *shape) if stacked else shape
        count = 1
        for dim in full:
            count *= dim
        return TensorInfo(name, full, kind, 0, kind.row_bytes(count))

    def _type_and_shape(self, piece: Piece) -> tuple[TensorType, tuple[int, ...]]:
        raw_name, linear = piece
        if linear is not None:
            return linear.type, linear.shape
        raw = self._checkpoint.raw(raw_name)
        if raw.dtype not in _PLAIN:
            raise UnsupportedModelError(f"{self.path}: tensor {raw_name!r} has dtype {raw.dtype} and no quantisation")
        is_matrix = len(raw.shape) > 1 and not raw_name.endswith("bias")
        return (_PLAIN[raw.dtype] if is_matrix else TensorType.F32), raw.shape

    def _bytes(self, piece: Piece, kind: TensorType) -> npt.NDArray[np.uint8]:
        raw_name, linear = piece
        if linear is not None:
            return linear.read()
        raw, data = self._checkpoint.raw(raw_name), self._checkpoint.data(raw_name)
        if _PLAIN[raw.dtype] == kind:
            return data
        return dequantize(data, _PLAIN[raw.dtype], raw.shape).ravel().view(np.uint8)


def _quantization(checkpoint: Checkpoint) -> Quantization | None:
    try:
        return read_quantization(checkpoint.config)
    except TwostrokeError as error:
        raise type(error)(f"{checkpoint.path / CONFIG}: {error}") from None


def _raw_names(piece: Piece) -> tuple[str, ...]:
    raw_name, linear = piece
    return (raw_name,) if linear is None else linear.parts
