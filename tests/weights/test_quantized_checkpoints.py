"""Quantised checkpoints run from their own numbers: packed by loops, value by value, and read back exactly."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.weights.hf_directory import Tensor, bf16, write_directory
from tests.weights.quantized_directory import (
    AWQ,
    GPTQ,
    NAMES,
    ROWS,
    Linear,
    Matrix,
    awq,
    compressed,
    gptq,
    packed,
    read,
    write,
)

from twostroke.errors import ModelFileError
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.checkpoint_weights import CheckpointWeights
from twostroke.weights.dequantize import dequantize
from twostroke.weights.tensor_types import TensorType


def expect(path: Path, values: Matrix, kind: str) -> None:
    ours, found, order = read(path)
    assert (found.name, order) == (kind, None)
    np.testing.assert_array_equal(ours, values.astype(np.float32), strict=True)


@pytest.mark.parametrize(("cols", "group_size", "kind"), [(256, 128, "G4_128_F16"), (192, 32, "G4_32_F16")])
@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("keep_index", [True, False])
def test_gptq(tmp_path: Path, cols: int, group_size: int, kind: str, version: str, keep_index: bool) -> None:
    linear = Linear(cols, group_size)
    config = {**GPTQ, "group_size": group_size, "checkpoint_format": version}
    write(tmp_path, gptq(linear, version, keep_index), config)
    expect(tmp_path, linear.values(), kind)


def test_gptq_with_one_group_a_row(tmp_path: Path) -> None:
    linear = Linear(192, 192)
    write(tmp_path, gptq(linear), {**GPTQ, "group_size": -1})
    expect(tmp_path, linear.values(), "G4_64_F16")


def test_gptq_symmetric(tmp_path: Path) -> None:
    linear = Linear(256, 64)
    linear.zeros[:] = 8
    write(tmp_path, gptq(linear), {**GPTQ, "group_size": 64, "sym": True})
    expect(tmp_path, linear.values(), "G4_64_F16")


def test_gptq_with_activation_order(tmp_path: Path) -> None:
    linear = Linear(256, 64)
    linear.group_of = np.random.default_rng(1).permutation(linear.group_of)
    write(tmp_path, gptq(linear), {**GPTQ, "group_size": 64, "desc_act": True})
    values, kind, order = read(tmp_path)
    assert kind == TensorType.G4_64_F16
    assert order is not None and order.dtype == np.int32 and sorted(order) == list(range(256))
    np.testing.assert_array_equal(values, linear.values()[:, order])
    inputs = np.random.default_rng(2).normal(size=256)
    np.testing.assert_allclose(values @ inputs[order], linear.values() @ inputs, rtol=1e-5, atol=1e-4)


def test_gptq_with_uneven_groups(tmp_path: Path) -> None:
    linear = Linear(256, 64)
    linear.group_of[70] = 0
    write(tmp_path, gptq(linear), {**GPTQ, "group_size": 64, "desc_act": True})
    with pytest.raises(ModelFileError, match=r"'model\.proj\.g_idx' does not give 64 inputs to each group"):
        read(tmp_path)


@pytest.mark.parametrize(("cols", "group_size", "kind"), [(256, 128, "G4_128_F16"), (192, 64, "G4_64_F16")])
def test_awq(tmp_path: Path, cols: int, group_size: int, kind: str) -> None:
    linear = Linear(cols, group_size)
    write(tmp_path, awq(linear), {**AWQ, "group_size": group_size})
    expect(tmp_path, linear.values(), kind)


def rounded(linear: Linear) -> Linear:
    """The same with scales that BF16 holds."""
    linear.scales = (bf16(linear.scales)[1].astype(np.uint32) << 16).view(np.float32)
    return linear


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize(("cols", "group_size", "kind"), [(256, 128, "G4_128_BF16"), (192, 32, "G4_32_BF16")])
def test_four_bits_packed(tmp_path: Path, asymmetric: bool, cols: int, group_size: int, kind: str) -> None:
    linear = rounded(Linear(cols, group_size))
    if not asymmetric:
        linear.zeros[:] = 8
    config = compressed(group_size=group_size, symmetric=not asymmetric)
    write(tmp_path, packed(linear, asymmetric), config)
    expect(tmp_path, linear.values(), kind)


def test_four_bits_packed_with_activation_order(tmp_path: Path) -> None:
    linear = rounded(Linear(128, 32))
    linear.zeros[:] = 8
    linear.group_of = np.random.default_rng(5).permutation(linear.group_of)
    tensors = packed(linear) | {"weight_g_idx": linear.group_of.astype(np.int32)}
    write(tmp_path, tensors, compressed(group_size=32, actorder="group"))
    values, _, order = read(tmp_path)
    assert order is not None
    np.testing.assert_array_equal(values, linear.values()[:, order])


@pytest.mark.parametrize(
    ("cols", "strategy", "group_size", "kind"),
    [(256, "group", 128, "G8_128_F16"), (192, "channel", 192, "G8_64_F16"), (96, "group", 32, "G8_32_F16")],
)
def test_eight_bits_packed(tmp_path: Path, cols: int, strategy: str, group_size: int, kind: str) -> None:
    linear = Linear(cols, group_size, bits=8)
    linear.zeros[:] = 128
    size = group_size if strategy == "group" else None
    write(tmp_path, packed(linear), compressed(8, strategy=strategy, group_size=size))
    expect(tmp_path, linear.values(), kind)


def e4m3(code: int) -> float:
    """One value of float8_e4m3fn."""
    sign, exponent, fraction = code >> 7, code >> 3 & 15, code & 7
    if exponent == 15 and fraction == 7:
        return math.nan
    size = fraction / 8 * 2**-6 if exponent == 0 else (1 + fraction / 8) * 2 ** (exponent - 7)
    return -size if sign else size


def fp8_values(codes: Matrix, scale_of: Callable[[int, int], float]) -> Matrix:
    values = [
        [np.float32(e4m3(int(c))) * np.float32(scale_of(i, j)) for j, c in enumerate(r)] for i, r in enumerate(codes)
    ]
    return np.array(values, np.float32)


def fp8_case(strategy: str, cols: int) -> tuple[dict[str, Tensor], Matrix]:
    rng = np.random.default_rng(9)
    codes = rng.integers(0, 256, (ROWS, cols)).astype(np.uint8)
    shape = {"tensor": (), "channel": (ROWS, 1), "block": (2, math.ceil(cols / 128))}[strategy]
    scales = np.exp(rng.normal(size=shape)).astype(np.float32)

    def scale_of(row: int, col: int) -> float:
        place = {"tensor": (), "channel": (row, 0), "block": (row // 8, col // 128)}[strategy]
        return float(scales[place])

    return {"weight": ("F8_E4M3", codes), "weight_scale": scales}, fp8_values(codes, scale_of)


@pytest.mark.parametrize("cols", [256, 192])
@pytest.mark.parametrize("strategy", ["tensor", "channel", "block"])
def test_fp8_of_compressed_tensors(tmp_path: Path, strategy: str, cols: int) -> None:
    tensors, values = fp8_case(strategy, cols)
    block = [8, 128] if strategy == "block" else None
    config = compressed(8, "float-quantized", type="float", strategy=strategy, block_structure=block, group_size=None)
    write(tmp_path, tensors, config)
    expect(tmp_path, values, "F8_128_F32" if cols == 256 else "F8_64_F32")


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_fp8_in_blocks(tmp_path: Path, dtype: str) -> None:
    tensors, _ = fp8_case("block", 256)
    codes, scales = tensors["weight"][1], np.asarray(tensors["weight_scale"])
    stored: Tensor = {"F32": scales, "F16": scales.astype(np.float16), "BF16": bf16(scales)}[dtype]
    exact = {"F32": scales, "F16": scales.astype(np.float16), "BF16": (bf16(scales)[1].astype(np.uint32) << 16)}[dtype]
    exact = exact.view(np.float32) if dtype == "BF16" else exact
    config = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [8, 128], "activation_scheme": "dynamic"}
    write(tmp_path, {"weight": tensors["weight"], "weight_scale_inv": stored}, config)
    kind = "F8_128_BF16" if dtype == "BF16" else "F8_128_F32"
    expect(tmp_path, fp8_values(codes, lambda row, col: float(exact[row // 8, col // 128])), kind)


def test_a_module_left_out_stays_plain(tmp_path: Path) -> None:
    plain = np.arange(ROWS * 4, dtype=np.float16).reshape(ROWS, 4)
    for config in (GPTQ, {"quant_method": "fp8"}):
        write(tmp_path, {"weight": plain}, config)
        values, kind, _ = read(tmp_path)
        assert kind == TensorType.F16
        np.testing.assert_array_equal(values, plain)


def test_experts_are_stacked(tmp_path: Path) -> None:
    experts = [Linear(128, 64, seed=seed) for seed in range(3)]
    tensors = {f"model.{i}.{name}": t for i, expert in enumerate(experts) for name, t in gptq(expert).items()}
    tensors |= {f"model.{i}.bias.weight": np.full((2, 3), i, np.float32) for i in range(3)}
    write_directory(tmp_path, {"model.safetensors": tensors}, {"quantization_config": {**GPTQ, "group_size": 64}})
    names = {
        "exps": tuple(f"model.{i}.weight" for i in range(3)),
        "plain": tuple(f"model.{i}.bias.weight" for i in range(3)),
    }
    with Checkpoint.open(tmp_path) as checkpoint:
        weights = CheckpointWeights(checkpoint, names)
        info = weights.info("exps")
        assert (info.shape, info.type, weights.input_orders) == ((3, ROWS, 128), TensorType.G4_64_F16, {})
        values = dequantize(weights.data("exps"), info.type, info.shape)
        np.testing.assert_array_equal(values, np.stack([expert.values() for expert in experts]))
        assert weights.info("plain").shape == (3, 2, 3)
        assert weights.data("plain").view(np.float32).sum() == 18
        with pytest.raises(ModelFileError, match="differ in type or shape"):
            CheckpointWeights(checkpoint, {"odd": ("model.0.weight", "model.0.bias.weight")})


def test_packed_bytes_stay_near_the_files(tmp_path: Path) -> None:
    """Of groups of 32 to 128, with the scales and zeros of the checkpoint."""
    for group_size in (32, 64, 128):
        linear = Linear(1024, group_size)
        tensors = gptq(linear, keep_index=False)
        write(tmp_path, tensors, {**GPTQ, "group_size": group_size})
        with Checkpoint.open(tmp_path) as checkpoint:
            stored = sum(checkpoint.raw(f"model.proj.{name}").num_bytes for name in tensors)
            assert stored <= CheckpointWeights(checkpoint, NAMES).info("blk.0.proj.weight").num_bytes <= 1.02 * stored
