"""Quantised linears as checkpoints store them: shape and type from the headers, then their bits put in order.

Owns five layouts. W is (rows, cols) = (outputs, inputs), G the groups of a row; a 32-bit word holds eight four-bit (or
four eight-bit) values, the first in its lowest bits.

- gptq: qweight (cols / 8, rows), eight inputs a word; qzeros (G, rows / 8), eight outputs a word, in version 1 stored
  less one modulo 16; scales (G, rows); g_idx (cols), the group of each input. Source: AutoGPTQ, GPTQModel.
- awq: qweight (cols, rows / 8) and qzeros (G, rows / 8), eight outputs a word in the order 0 2 4 6 1 3 5 7; scales
  (G, rows). Source: AutoAWQ's GEMM linear.
- packed: weight_packed (rows, cols / 8 or 4) and weight_zero_point (rows / 8, G), both with half the range added;
  weight_scale (rows, G); weight_shape; weight_g_idx. Source: compressed-tensors' `pack-quantized`.
- fp8: weight (rows, cols) in E4M3; one scale a tensor, a row, or a block of rows and columns. Sources:
  compressed-tensors' `float-quantized`, transformers' fine-grained FP8.
- mxfp4: NAME_blocks (..., G, 16), two values a byte, the first in its low half; NAME_scales (..., G). Other
  dimensions stay: gpt-oss stacks its experts. Source: OpenAI's gpt-oss checkpoints.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError
from twostroke.weights.bit_fields import Bytes, fields, merge_planes
from twostroke.weights.grouped_blocks import Groups, grouped_type, pack
from twostroke.weights.linear_parts import SCALES, WORDS, LinearParts, fields_across, fields_down
from twostroke.weights.quantization_config import Quantization
from twostroke.weights.tensor_types import TensorType

_BLOCKS_AT_ONCE = 1 << 16
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class QuantizedLinear:
    """One quantised linear, checked but not read: `shape` is (..., rows, cols), `type` what its groups pack into.

    `parts` are the names of the raw tensors it is made of. `read` packs it, (num_bytes,) uint8, the columns in the
    order of `input_order`, which is the input each column multiplies, (cols,) int32, or None for 0, 1, 2 ...
    """

    shape: tuple[int, ...]
    type: TensorType
    parts: tuple[str, ...]
    read: Callable[[], Bytes]
    input_order: Callable[[], npt.NDArray[np.int32] | None]


def find_linear(parts: LinearParts, quantization: Quantization) -> QuantizedLinear | None:
    """The linear whose tensors `parts` are, or None where the module is not quantised.

    Raises ModelFileError for a tensor that is missing or of another shape, UnsupportedModelError for groups or scales
    that no type holds.
    """
    first, find = _LAYOUTS[quantization.layout]
    if first not in parts or (first == "weight" and parts.raw(first, _FLOATS).dtype != "F8_E4M3"):
        return None
    return find(parts, quantization)


def _gptq(parts: LinearParts, quantization: Quantization) -> QuantizedLinear:
    words, rows = parts.matrix("qweight", WORDS)
    cols, shift = 8 * words, np.uint8(quantization.zero_shift)
    group_size = quantization.group_size or cols
    num_groups = -(-cols // group_size)
    parts.expect("qzeros", WORDS, (num_groups, -(-rows // 8)))
    scale = parts.expect("scales", SCALES, (num_groups, rows))

    def order() -> npt.NDArray[np.int32] | None:
        return parts.input_order("g_idx", cols, group_size)

    def read() -> Bytes:
        codes = _reordered(fields_down(parts.array("qweight"), 4).T, order())
        zeros = fields_across(parts.array("qzeros"), 4)[:, :rows].T + shift & np.uint8(15)
        return pack(Groups(codes, parts.array("scales").T, zeros, group_size), kind)

    kind = grouped_type("G4", cols, group_size, scale, _title(parts))
    return QuantizedLinear((rows, cols), kind, _names(parts, "qweight", "qzeros", "scales", "g_idx"), read, order)


def _awq(parts: LinearParts, quantization: Quantization) -> QuantizedLinear:
    cols, words = parts.matrix("qweight", WORDS)
    rows, group_size = 8 * words, quantization.group_size or cols
    num_groups = -(-cols // group_size)
    parts.expect("qzeros", WORDS, (num_groups, words))
    scale = parts.expect("scales", SCALES, (num_groups, rows))

    def read() -> Bytes:
        codes = fields_across(parts.array("qweight"), 4, _AWQ_ORDER).T
        zeros = fields_across(parts.array("qzeros"), 4, _AWQ_ORDER).T
        return pack(Groups(np.ascontiguousarray(codes), parts.array("scales").T, zeros, group_size), kind)

    kind = grouped_type("G4", cols, group_size, scale, _title(parts))
    return QuantizedLinear((rows, cols), kind, _names(parts, "qweight", "qzeros", "scales"), read, _in_order)


def _packed(parts: LinearParts, quantization: Quantization) -> QuantizedLinear:
    bits = quantization.bits
    per_word = 32 // bits
    rows, words = parts.matrix("weight_packed", WORDS)
    cols = _declared_cols(parts, rows, words, per_word)
    group_size = quantization.group_size or cols
    num_groups = -(-cols // group_size)
    scale = parts.expect("weight_scale", SCALES, (rows, num_groups))
    if not quantization.symmetric:
        parts.expect("weight_zero_point", WORDS, (-(-rows // per_word), num_groups))

    def order() -> npt.NDArray[np.int32] | None:
        return parts.input_order("weight_g_idx", cols, group_size)

    def read() -> Bytes:
        codes = _reordered(fields_across(parts.array("weight_packed"), bits)[:, :cols], order())
        scales = parts.array("weight_scale")
        if bits == 8:
            return pack(
                Groups(codes ^ np.uint8(0x80), scales, None, group_size), kind
            )  # excess 128 to two's complement
        zeros = np.full(scales.shape, 8, np.uint8)
        if not quantization.symmetric:
            zeros = fields_down(parts.array("weight_zero_point"), bits)[:rows]
        return pack(Groups(codes, scales, zeros, group_size), kind)

    kind = grouped_type("G4" if bits == 4 else "G8", cols, group_size, scale, _title(parts))
    names = ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx")
    return QuantizedLinear((rows, cols), kind, _names(parts, *names), read, order)


def _fp8(parts: LinearParts, quantization: Quantization) -> QuantizedLinear:
    rows, cols = parts.matrix("weight", ("F8_E4M3",))
    group_size, rows_of_block = quantization.group_size or cols, quantization.rows_of_block
    shapes: list[tuple[int, ...]] = [(rows, 1), (rows,), (1,), (), (1, 1)]
    if rows_of_block:
        shapes = [(-(-rows // rows_of_block), -(-cols // group_size))]
    scale = parts.expect(quantization.scale_name, SCALES, *shapes)

    def read() -> Bytes:
        scales = parts.array(quantization.scale_name)
        if rows_of_block:
            scales = scales[np.arange(rows) // rows_of_block]
        else:
            scales = np.broadcast_to(scales.reshape(-1, 1), (rows, 1))
        return pack(Groups(parts.array("weight"), scales, None, group_size), kind)

    # float32 holds float16 exactly
    kind = grouped_type("F8", cols, group_size, "F32" if scale == "F16" else scale, _title(parts))
    names = _names(parts, "weight", quantization.scale_name, "input_scale", "weight_zero_point")
    return QuantizedLinear((rows, cols), kind, names, read, _in_order)


def _mxfp4(parts: LinearParts, quantization: Quantization) -> QuantizedLinear:
    kind, blocks = TensorType.MXFP4, parts.raw("blocks", ("U8",))
    *lead, groups, num_bytes = blocks.shape if len(blocks.shape) > 2 else (0, 0, 0)
    if num_bytes != kind.block_bytes - 1 or 0 in blocks.shape:
        raise ModelFileError(f"{_title(parts)}_blocks has shape {list(blocks.shape)}, not blocks of 16 bytes")
    parts.expect("scales", ("U8", "F8_E8M0"), (*lead, groups))

    def read() -> Bytes:
        pairs, scales = parts.array("blocks").reshape(-1, 16), parts.array("scales").reshape(-1)
        packed = np.empty((len(pairs), kind.block_bytes), np.uint8)
        packed[:, 0] = scales
        for first in range(0, len(pairs), _BLOCKS_AT_ONCE):
            values = fields(pairs[first : first + _BLOCKS_AT_ONCE], 4, 2)  # (num_blocks, 32), in order
            packed[first : first + _BLOCKS_AT_ONCE, 1:] = merge_planes(values, 4, 16)
        return packed.reshape(-1)

    return QuantizedLinear((*lead, groups * kind.block_size), kind, _names(parts, "blocks", "scales"), read, _in_order)


_FLOATS = ("F8_E4M3", "F32", "F16", "BF16")
_LAYOUTS: dict[str, tuple[str, Callable[[LinearParts, Quantization], QuantizedLinear]]] = {
    "gptq": ("qweight", _gptq),
    "awq": ("qweight", _awq),
    "packed": ("weight_packed", _packed),
    "fp8": ("weight", _fp8),
    "mxfp4": ("blocks", _mxfp4),
}


def _in_order() -> None:
    """The columns of a linear that has no order of its own."""


def _reordered(codes: npt.NDArray[np.uint8], order: npt.NDArray[np.int32] | None) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(codes if order is None else codes[:, order])


def _names(parts: LinearParts, *names: str) -> tuple[str, ...]:
    return tuple(parts.full(name) for name in names if name in parts)


def _title(parts: LinearParts) -> str:
    return f"{parts.checkpoint.path}: {parts.prefix[:-1]}"


def _declared_cols(parts: LinearParts, rows: int, words: int, per_word: int) -> int:
    """Columns of a packed weight: those of `weight_shape`, since the last word of a row may not be full."""
    if "weight_shape" not in parts:
        return words * per_word
    parts.expect("weight_shape", ("I64", "I32"), (2,))
    declared = [int(n) for n in parts.array("weight_shape")]
    if declared[0] != rows or not (words - 1) * per_word < declared[1] <= words * per_word:
        name = parts.full("weight_shape")
        raise ModelFileError(
            f"{parts.checkpoint.path}: tensor {name!r} is {declared}; {rows} rows of {words} words are packed"
        )
    return declared[1]
