"""Quantised linears packed by loops, value by value, in the layouts of checkpoints. Owns test data only."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.weights.hf_directory import Tensor, bf16, write_directory

from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.checkpoint_weights import CheckpointWeights
from twostroke.weights.dequantize import dequantize
from twostroke.weights.source import WeightSource
from twostroke.weights.tensor_types import TensorType

ROWS = 16
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}
Matrix = npt.NDArray[Any]


class Linear:
    """Random codes, zeros and scales of a linear, and its values as each format defines them."""

    def __init__(self, cols: int, group_size: int, bits: int = 4, seed: int = 0, rows: int = ROWS) -> None:
        rng = np.random.default_rng(seed)
        self.rows, self.cols, self.group_size, self.bits = rows, cols, group_size, bits
        self.groups = math.ceil(cols / group_size)
        self.codes = rng.integers(0, 1 << bits, (rows, cols))
        self.zeros = rng.integers(0, 1 << bits, (rows, self.groups))
        self.scales = rng.normal(size=(rows, self.groups)).astype(np.float16)
        self.group_of = np.arange(cols) // group_size

    def values(self) -> Matrix:
        """(rows, cols), by loops in Python's own numbers."""
        result = np.empty((self.rows, self.cols))
        for row in range(self.rows):
            for col in range(self.cols):
                group = self.group_of[col]
                step = int(self.codes[row, col]) - int(self.zeros[row, group])
                result[row, col] = float(self.scales[row, group]) * step
        return result


def words(values: list[int], bits: int) -> int:
    """One word as a signed 32-bit integer, the first value in the lowest bits."""
    word = sum(value << (bits * position) for position, value in enumerate(values))
    return word - (1 << 32) if word >= 1 << 31 else word


def pack_rows(matrix: Matrix, bits: int, order: tuple[int, ...] | None = None) -> Matrix:
    """Pack along rows; a last word that is not full is filled with zeros."""
    count = 32 // bits
    packed = np.zeros((len(matrix), math.ceil(matrix.shape[1] / count)), np.int32)
    for row in range(len(matrix)):
        for word in range(packed.shape[1]):
            values = [int(v) for v in matrix[row, word * count : (word + 1) * count]]
            packed[row, word] = words([values[i] for i in order] if order else values, bits)
    return packed


def gptq(linear: Linear, version: str = "gptq", keep_index: bool = True) -> dict[str, Tensor]:
    zeros = (linear.zeros - 1) % 16 if version == "gptq" else linear.zeros
    tensors: dict[str, Tensor] = {
        "qweight": pack_rows(linear.codes, 4).T,
        "qzeros": pack_rows(zeros.T, 4),
        "scales": linear.scales.T,
    }
    return tensors | ({"g_idx": linear.group_of.astype(np.int32)} if keep_index else {})


def awq(linear: Linear) -> dict[str, Tensor]:
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {
        "qweight": pack_rows(linear.codes.T, 4, order),
        "qzeros": pack_rows(linear.zeros.T, 4, order),
        "scales": linear.scales.T,
    }


def packed(linear: Linear, asymmetric: bool = False) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {
        "weight_packed": pack_rows(linear.codes, linear.bits),
        "weight_scale": bf16(linear.scales) if linear.bits == 4 else linear.scales,
        "weight_shape": np.array([ROWS, linear.cols], np.int64),
    }
    return tensors | ({"weight_zero_point": pack_rows(linear.zeros.T, linear.bits).T} if asymmetric else {})


def write(path: Path, tensors: dict[str, Tensor], quantization: dict[str, Any]) -> Path:
    named = {f"model.proj.{name}": tensor for name, tensor in tensors.items()}
    named["model.norm.weight"] = bf16(np.arange(1, 5))
    return write_directory(path, {"model.safetensors": named}, {"quantization_config": quantization})


NAMES = {"blk.0.proj.weight": "model.proj.weight", "blk.0.norm.weight": "model.norm.weight"}


def read(path: Path) -> tuple[Matrix, TensorType, Matrix | None]:
    """Values, type and input order of the linear; the plain vector beside it is checked."""
    with Checkpoint.open(path) as checkpoint:
        weights = CheckpointWeights(checkpoint, NAMES)
        source: WeightSource = weights
        assert set(NAMES) <= set(source.names) and weights.unused == ()
        norm = source.info("blk.0.norm.weight")
        assert (norm.type, norm.shape, norm.num_bytes) == (TensorType.F32, (4,), 16)
        np.testing.assert_array_equal(source.data("blk.0.norm.weight").view(np.float32), [1, 2, 3, 4])
        info = source.info("blk.0.proj.weight")
        source.release("blk.0.proj.weight")
        data = source.data("blk.0.proj.weight")
        assert data.nbytes == info.num_bytes == info.type.row_bytes(info.num_values)
        return dequantize(data, info.type, info.shape), info.type, order_of(weights)


def order_of(weights: CheckpointWeights) -> Matrix | None:
    """The order of the linear's inputs, where it has one of its own."""
    name = weights.input_orders.get("blk.0.proj.weight")
    return None if name is None else weights.data(name).view(np.int32)


def compressed(bits: int = 4, layout: str = "pack-quantized", **weights: Any) -> dict[str, Any]:
    rows = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128, **weights}
    groups = {"group_0": {"weights": rows, "targets": ["Linear"], "input_activations": None}}
    return {"quant_method": "compressed-tensors", "format": layout, "config_groups": groups, "ignore": ["lm_head"]}
