"""Dequantisation equals the `gguf` library's, bit for bit: random blocks, extreme scales, a real model's tensors."""

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from twostroke.errors import UnsupportedModelError
from twostroke.weights.dequantize import dequantize
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.tensor_types import TensorType

# type -> where in a block its float16 scales begin; none: its scales have another form
SCALES: dict[str, tuple[int, ...]] = {
    "F32": (),
    "F16": (0,),
    "BF16": (),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "MXFP4": (),
    "NVFP4": (),
    "IQ1_S": (0,),
    "IQ1_M": (),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ2_S": (0,),
    "IQ3_XXS": (0,),
    "IQ3_S": (0,),
}
TYPES = [TensorType[name] for name in SCALES]
# zero, subnormals, smallest normal, one, largest, infinity, not-a-number, with both signs
HALVES = [0x0000, 0x0001, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0x7E01]
HALVES += [half | 0x8000 for half in HALVES]


def expect_equal_bits(data: npt.NDArray[np.uint8], tensor_type: TensorType, shape: tuple[int, ...]) -> None:
    rows = data.reshape(*shape[:-1], -1)
    with np.errstate(all="ignore"):
        theirs = gguf.dequantize(rows, gguf.GGMLQuantizationType(tensor_type))
    ours = dequantize(data, tensor_type, shape)
    assert ours.dtype == np.float32 and ours.shape == theirs.shape == shape
    np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))


@pytest.mark.parametrize("tensor_type", TYPES, ids=lambda t: t.name)
def test_random_blocks(tensor_type: TensorType) -> None:
    rng = np.random.default_rng(tensor_type)
    num_rows, num_cols = 70, 20 * 256  # more values than are unpacked at once
    data = rng.integers(0, 256, num_rows * tensor_type.row_bytes(num_cols), dtype=np.uint8)
    expect_equal_bits(data, tensor_type, (num_rows, num_cols))


@pytest.mark.parametrize("tensor_type", [t for t in TYPES if SCALES[t.name]], ids=lambda t: t.name)
def test_every_pair_of_extreme_scales(tensor_type: TensorType) -> None:
    pairs = np.array([(first, second) for first in HALVES for second in HALVES], np.uint16)
    rng = np.random.default_rng(7)
    blocks = rng.integers(0, 256, (len(pairs), tensor_type.block_bytes), dtype=np.uint8)
    for column, at in enumerate(SCALES[tensor_type.name]):
        blocks[:, at : at + 2] = np.ascontiguousarray(pairs[:, column : column + 1]).view(np.uint8)
    expect_equal_bits(blocks.ravel(), tensor_type, (len(pairs), tensor_type.block_size))


def test_smollm2_tensors(smollm2_path: Path) -> None:
    with GGUFFile.open(smollm2_path) as file:
        seen = set()
        for name in ("token_embd.weight", "blk.0.attn_norm.weight", "blk.7.ffn_down.weight", "blk.29.attn_v.weight"):
            info = file.info(name)
            seen.add(info.type.name)
            expect_equal_bits(file.data(name), info.type, info.shape)
    assert seen == {"F32", "Q8_0", "Q4_1"}


@pytest.mark.large
def test_qwen_tensors(qwen_path: Path) -> None:
    with GGUFFile.open(qwen_path) as file:
        seen = set()
        for name in ("blk.0.attn_q.weight", "blk.0.attn_v.weight", "blk.0.attn_q.bias"):
            info = file.info(name)
            seen.add(info.type.name)
            expect_equal_bits(file.data(name), info.type, info.shape)
    assert seen == {"F32", "Q4_K", "Q6_K"}


def test_type_table_equals_the_librarys() -> None:
    theirs = {(t.name, int(t)): gguf.GGML_QUANT_SIZES[t] for t in gguf.GGMLQuantizationType}
    ours = {(t.name, int(t)): (t.block_size, t.block_bytes) for t in TensorType}
    assert {key: theirs[key] for key in ours if key in theirs} == {key: ours[key] for key in ours if key in theirs}
    assert len(ours.keys() & theirs.keys()) >= 30  # older releases of the library lack the newest types
    assert TensorType.Q4_K.bits_per_weight == 4.5


def test_other_types_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match="tensor type Q8_K is not supported"):
        dequantize(np.zeros(292, np.uint8), TensorType.Q8_K, (256,))


def test_every_type_that_the_library_can_unpack_is_covered() -> None:
    names = {t.name for t in gguf.GGMLQuantizationType if t in gguf.quants._type_traits}
    assert names | {"F32", "F16"} == set(SCALES)


def test_a_size_that_does_not_fit_the_shape() -> None:
    with pytest.raises(ValueError, match="34 bytes of Q8_0 do not hold the 64 values"):
        dequantize(np.zeros(34, np.uint8), TensorType.Q8_0, (2, 32))
