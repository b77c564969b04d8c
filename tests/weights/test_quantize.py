"""Quantisers: exact where the format leaves no choice, else closer than the `gguf` library, llama.cpp and rounding."""

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from twostroke.errors import UnsupportedModelError
from twostroke.weights.dequantize import dequantize
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.quantize import quantizable, quantize
from twostroke.weights.tensor_types import TensorType

Values = npt.NDArray[np.float32]
EXACT = ("F32", "F16", "BF16", "Q8_0", "Q4_0")
SEARCHED = ("Q4_1", "Q5_0", "Q5_1")
SUPER = ("Q4_K", "Q5_K", "Q6_K")
# Mean squared error, relative to the mean square, of llama.cpp's own quantisers (quantize_row_*_ref) on `gaussian()`.
LLAMA_CPP = {"Q4_0": 7.4142e-3, "Q4_1": 6.1264e-3, "Q5_0": 1.8345e-3, "Q5_1": 1.4390e-3, "Q8_0": 2.8754e-5}
LLAMA_CPP |= {"Q4_K": 5.1078e-3, "Q5_K": 1.3097e-3, "Q6_K": 3.1609e-4}


def gaussian() -> Values:
    return (0.02 * np.random.default_rng(0).standard_normal((256, 1024))).astype(np.float32)


def ours(values: Values, name: str) -> Values:
    kind = TensorType[name]
    packed = quantize(values, kind)
    assert packed.shape == (kind.row_bytes(values.size),) and packed.dtype == np.uint8
    return dequantize(packed, kind, values.shape)


def librarys(values: Values, name: str) -> Values:
    kind = gguf.GGMLQuantizationType[name]
    return gguf.dequantize(gguf.quantize(values, kind), kind)


def error(values: Values, approximation: Values) -> float:
    return float(((values - approximation).astype(np.float64) ** 2).mean() / (values.astype(np.float64) ** 2).mean())


SUBNORMAL = 4  # the row of `odd_values` for which the library divides by zero


def odd_values() -> Values:
    """Zeros of both signs, halves, ties, subnormals, one large value, and values alike."""
    rows = np.zeros((9, 256), np.float32)
    rows[1] = -0.0
    rows[2] = np.linspace(-127, 127, 256)
    rows[3] = np.resize(np.arange(-127, 128) + np.float32(0.5), 256)
    rows[SUBNORMAL] = 1e-40
    rows[5, 7] = 65000
    rows[6] = -3.25
    rows[7] = np.resize([1, -1], 256)
    rows[8] = np.random.default_rng(1).standard_normal(256) * 1e-6
    return rows


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("values", [gaussian(), np.delete(odd_values(), SUBNORMAL, axis=0)], ids=["gaussian", "odd"])
def test_bits_are_the_librarys(name: str, values: Values) -> None:
    theirs = gguf.quantize(values, gguf.GGMLQuantizationType[name])
    np.testing.assert_array_equal(quantize(values, TensorType[name]), np.ravel(theirs).view(np.uint8))


@pytest.mark.parametrize("name", LLAMA_CPP)
def test_no_worse_than_llama_cpp(name: str) -> None:
    assert error(gaussian(), ours(gaussian(), name)) <= LLAMA_CPP[name] * 1.0001


@pytest.mark.parametrize("name", SEARCHED)
def test_closer_than_the_library(name: str, smollm2_path: Path) -> None:
    for values in (gaussian(), real_values(smollm2_path, "token_embd.weight")):
        assert error(values, ours(values, name)) < 0.95 * error(values, librarys(values, name))


def rounded_symmetric(values: Values, levels: int) -> Values:
    """Each block of 32 rounded to `2 * levels` steps of its largest value, with an exact scale."""
    blocks = values.reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / (levels - 1)
    return (np.rint(blocks / scale) * scale).reshape(values.shape)


def rounded_affine(values: Values, top: int) -> Values:
    """Each block of 32 rounded to `top` steps between its extremes, with an exact scale and minimum."""
    blocks = values.reshape(-1, 32)
    low = blocks.min(axis=1, keepdims=True)
    scale = (blocks.max(axis=1, keepdims=True) - low) / top
    return (np.rint((blocks - low) / scale) * scale + low).reshape(values.shape)


NAIVE: dict[str, Callable[[Values], Values]] = {
    "Q4_K": lambda values: rounded_affine(values, 15),
    "Q5_K": lambda values: rounded_affine(values, 31),
    "Q6_K": lambda values: rounded_symmetric(values, 32),
}


def real_values(path: Path, name: str) -> Values:
    with GGUFFile.open(path) as file:
        info = file.info(name)
        return np.ascontiguousarray(
            dequantize(file.data(name), info.type, info.shape).ravel()[: 1 << 18].reshape(-1, 512)
        )


@pytest.mark.parametrize("name", SUPER)
def test_super_blocks_are_closer_than_rounding_with_exact_scales(name: str, smollm2_path: Path) -> None:
    for values in (gaussian(), real_values(smollm2_path, "token_embd.weight")):
        assert error(values, ours(values, name)) < error(values, NAIVE[name](values))


@pytest.mark.parametrize("name", [*SEARCHED, *SUPER, "Q8_0"])
def test_odd_values(name: str) -> None:
    values = odd_values()
    result = ours(values, name)
    assert np.isfinite(result).all()
    assert not result[:2].any()  # zeros stay zero
    steps = 256 if name == "Q8_0" else 1 << int(name[1])
    span = values.max(axis=1) - np.minimum(values.min(axis=1), 0)
    # half a step and what rounding scales adds, and below 1e-5 what float16 scales cannot tell from 0
    allowed = 1.2 * span / (steps - 2) + np.abs(values).max(axis=1) / 60 + 1e-5
    assert (np.abs(values - result).max(axis=1) <= allowed).all()


def test_what_a_type_holds_stays_as_it_is(smollm2_path: Path) -> None:
    """Values that came out of a type go back into it unchanged."""
    with GGUFFile.open(smollm2_path) as file:
        for name in ("blk.10.attn_q.weight", "token_embd.weight"):
            info = file.info(name)
            values = dequantize(file.data(name), info.type, info.shape)[:64]
            np.testing.assert_array_equal(ours(values, info.type.name), values)


def test_more_values_than_are_packed_at_once_are_packed_alike() -> None:
    values = gaussian()
    whole = quantize(values, TensorType.Q4_K)
    pieces = [quantize(values[row : row + 3], TensorType.Q4_K) for row in range(0, len(values), 3)]
    np.testing.assert_array_equal(whole, np.concatenate(pieces))


def test_what_cannot_be_quantised_is_named() -> None:
    assert quantizable(TensorType.Q4_K) and not quantizable(TensorType.IQ2_S)
    with pytest.raises(UnsupportedModelError, match="no quantiser for IQ2_S; these are: F32, F16, BF16, Q4_0"):
        quantize(np.zeros((1, 256), np.float32), TensorType.IQ2_S)
    with pytest.raises(ValueError, match="rows of 96 values are not whole Q4_K blocks of 256"):
        quantize(np.zeros((8, 96), np.float32), TensorType.Q4_K)
    for bad in (np.nan, np.inf, 1e6):
        with pytest.raises(ValueError, match=r"not finite or over 65504 cannot be Q8_0"):
            quantize(np.full((1, 32), bad, np.float32), TensorType.Q8_0)
    assert dequantize(quantize(np.full((1, 2), 1e30, np.float32), TensorType.BF16), TensorType.BF16, (2,))[0] > 9e29
