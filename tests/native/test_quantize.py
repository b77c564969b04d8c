"""The core's quantisers: the bits of the NumPy ones on every instruction set, and their errors."""

import numpy as np
import numpy.typing as npt
import pytest

from twostroke.errors import UnsupportedModelError
from twostroke.native import _core
from twostroke.native.quantize import quantize_natively
from twostroke.weights.quantize import quantize
from twostroke.weights.tensor_types import TensorType

Values = npt.NDArray[np.float32]
TYPES = ("Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")


def samples() -> dict[str, Values]:
    """Values of one size, of many sizes, and the awkward: zeros of both signs, ties, subnormals, extremes."""
    rng = np.random.default_rng(5)
    odd = np.zeros((13, 256), np.float32)
    odd[1] = -0.0
    odd[2] = np.linspace(-127, 127, 256)
    odd[3] = np.resize(np.arange(-127, 128) + np.float32(0.5), 256)
    odd[4] = 1e-40
    odd[5, 7] = 65000
    odd[6] = -3.25
    odd[7] = np.resize([1, -1], 256)
    odd[8] = rng.standard_normal(256) * 1e-6
    odd[9:12] = 65504
    odd[10] *= -1
    odd[11, ::2] *= -1
    odd[12, :100] = 1e-6
    wide = rng.standard_normal((33, 256)) * np.exp(2 * rng.standard_normal((33, 256)))
    return {
        "even": (0.02 * rng.standard_normal((7, 512))).astype(np.float32),
        "wide": wide.astype(np.float32),
        "odd": odd,
    }


@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("name", TYPES)
def test_bits_are_those_of_numpy(name: str, isa: str) -> None:
    kind = TensorType[name]
    for values in samples().values():
        with np.errstate(over="ignore", invalid="ignore"):  # of candidates that are not kept
            expected = quantize(values, kind)
        np.testing.assert_array_equal(quantize_natively(values, kind, isa), expected)


@pytest.mark.parametrize("name", ("F16", "BF16", "F32", "Q4_0"))
def test_plain_types_are_written_too(name: str) -> None:
    values = samples()["wide"]
    np.testing.assert_array_equal(quantize_natively(values, TensorType[name]), quantize(values, TensorType[name]))


def test_what_cannot_be_packed_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="no quantiser for IQ2_S"):
        quantize_natively(np.zeros((1, 256), np.float32), TensorType.IQ2_S)
    with pytest.raises(ValueError, match="rows of 96 values are not whole Q4_K blocks of 256"):
        quantize_natively(np.zeros((8, 96), np.float32), TensorType.Q4_K)
    for bad in (np.nan, -np.inf, -1e6):
        with pytest.raises(ValueError, match=r"not finite or over 65504 cannot be Q6_K"):
            quantize_natively(np.full((1, 256), bad, np.float32), TensorType.Q6_K)
    with pytest.raises(ValueError, match="255 values do not fill 144 bytes of blocks"):
        _core.quantize(
            _core.available_isas()[0], int(TensorType.Q4_K), np.zeros(255, np.float32), np.zeros(144, np.uint8)
        )
