"""Weights given in another tensor type: quantised as they are read, or written so to a GGUF file.

Which tensor gets which type is `matrix_types`' to say. A matrix that falls back to a type with smaller blocks is named
in `fallbacks`.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.weights.bit_fields import Bytes, Floats
from twostroke.weights.dequantize import dequantize
from twostroke.weights.gguf_header import MetadataValue
from twostroke.weights.gguf_writer import write_gguf
from twostroke.weights.matrix_types import matrix_type, whole_blocks
from twostroke.weights.quantize import quantizable, quantize
from twostroke.weights.source import TensorInfo, WeightSource
from twostroke.weights.tensor_types import TensorType

_VALUES_AT_ONCE = 1 << 20
_QUANTIZATION_VERSION = 2
Quantizer = Callable[[Floats, TensorType], Bytes]
# The number of a file's main type in `general.file_type`. Source: llama.cpp's list of file types.
_FILE_TYPES = {
    TensorType.F32: 0,
    TensorType.F16: 1,
    TensorType.Q4_0: 2,
    TensorType.Q4_1: 3,
    TensorType.Q8_0: 7,
    TensorType.Q5_0: 8,
    TensorType.Q5_1: 9,
    TensorType.Q4_K: 14,
    TensorType.Q5_K: 16,
    TensorType.Q6_K: 18,
    TensorType.BF16: 32,
}


@dataclass(frozen=True, slots=True)
class Fallback:
    """A matrix that could not have the type asked for: its row length, and the type it has instead."""

    name: str
    row: int
    type: TensorType


class QuantizedSource:
    """A `WeightSource` whose matrices have another type; each is quantised when `data` is called, whole rows at a time.

    `pack` does it, `quantize` or one with the same bits, on `num_threads` threads. Raises UnsupportedModelError for a
    type that nothing is quantised to, or a tensor that cannot be unpacked.
    """

    def __init__(
        self, source: WeightSource, kind: TensorType, *, pack: Quantizer = quantize, num_threads: int = 1
    ) -> None:
        if not quantizable(kind):
            raise UnsupportedModelError(f"weights cannot be quantised to {kind.name}")
        self._source = source
        self._pack, self._num_threads = pack, num_threads
        self.fallbacks: list[Fallback] = []
        self.tensors: dict[str, TensorInfo] = {}
        has_output = "output.weight" in source.names
        for name in source.names:
            info = source.info(name)
            wanted = self._type_of(info, kind, has_output)
            num_bytes = info.num_values // wanted.block_size * wanted.block_bytes
            self.tensors[name] = TensorInfo(name, info.shape, wanted, 0, num_bytes)

    @property
    def names(self) -> Iterable[str]:
        """Tensor names, in the order of the source."""
        return self.tensors.keys()

    def info(self, name: str) -> TensorInfo:
        """Shape, type and size of a tensor as given here; its offset is 0. Raises ModelFileError for another name."""
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelFileError(f"tensor {name!r} is missing") from None

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        """The tensor's packed bytes, (num_bytes,) uint8: the source's own where the type is."""
        have, wanted = self._source.info(name), self.info(name)
        data = self._source.data(name)
        if have.type == wanted.type:
            return data
        cols = have.shape[-1]
        rows = data.reshape(-1, have.type.row_bytes(cols))
        packed = np.empty((len(rows), wanted.type.row_bytes(cols)), np.uint8)
        step = max(1, _VALUES_AT_ONCE // cols)

        def requantize(first: int) -> None:
            part = rows[first : first + step]
            values = dequantize(part.ravel(), have.type, (len(part), cols))
            packed[first : first + step] = self._pack(values, wanted.type).reshape(len(part), -1)

        try:
            with ThreadPoolExecutor(self._num_threads) as threads:
                for _ in threads.map(requantize, range(0, len(rows), step)):
                    pass
        except ValueError as error:
            raise ModelFileError(f"tensor {name!r}: {error}") from None
        return packed.ravel()

    def release(self, name: str) -> None:
        """Give the source's pages back to the system."""
        self._source.release(name)

    def _type_of(self, info: TensorInfo, kind: TensorType, has_output: bool) -> TensorType:
        """The type a tensor gets; a fallback is noted."""
        wanted = matrix_type(info.name, info.shape, kind, has_output)
        if wanted is None:
            return info.type
        row = info.shape[-1]
        found = whole_blocks(wanted, row)
        if found != wanted:
            self.fallbacks.append(Fallback(info.name, row, found))
        return found


def write_quantized(
    source: QuantizedSource,
    metadata: Mapping[str, MetadataValue],
    path: Path,
    kind: TensorType,
    on_tensor: Callable[[TensorInfo], None] = lambda info: None,
) -> None:
    """Write the weights to a GGUF file that other engines read, with a model's metadata; `on_tensor` hears of each.

    One tensor is in memory at a time. The file gets its name when it is complete. Raises ModelFileError.
    """

    def data(name: str) -> npt.NDArray[np.uint8]:
        on_tensor(source.info(name))
        packed = source.data(name)
        source.release(name)
        return packed

    kept = {key: value for key, value in metadata.items() if not key.startswith("split.")}
    kept |= {"general.file_type": _FILE_TYPES[kind], "general.quantization_version": _QUANTIZATION_VERSION}
    write_gguf(path, kept, {name: (info.type, info.shape) for name, info in source.tensors.items()}, data)
