"""Float32 to packed blocks by the compiled core. Owns the choice of who packs; `weights.quantize` is what it means.

The core gives the same bits as the NumPy quantisers on every instruction set, many times faster.
Types without a search are NumPy's.
"""

import numpy as np

from twostroke.native import _core
from twostroke.native.executor import pick_isa
from twostroke.weights.bit_fields import Bytes, Floats
from twostroke.weights.quantize import quantize, whole_blocks
from twostroke.weights.tensor_types import TensorType

_NATIVE = frozenset(
    {
        *(TensorType.Q4_1, TensorType.Q5_0, TensorType.Q5_1, TensorType.Q8_0),
        *(TensorType.Q4_K, TensorType.Q5_K, TensorType.Q6_K),
    }
)


def quantize_natively(values: Floats, tensor_type: TensorType, isa: str | None = None) -> Bytes:
    """As `weights.quantize.quantize`: float32 (..., cols) to (num_bytes,) uint8, with the same errors.

    Raises ConfigError for an instruction set that this machine lacks.
    """
    if tensor_type not in _NATIVE:
        return quantize(values, tensor_type)
    rows = whole_blocks(values, tensor_type)
    packed = np.empty(len(rows) * tensor_type.block_bytes, np.uint8)
    _core.quantize(pick_isa(isa), int(tensor_type), rows, packed)
    return packed
