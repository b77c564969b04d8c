"""RoPE frequencies, and the rotation against complex multiplication."""

import numpy as np
import pytest

from twostroke.program.builder import Builder
from twostroke.program.reference import ReferenceExecutor
from twostroke.program.rope import inverse_frequencies
from twostroke.program.values import RopeSpec, Weight

SPEC = RopeSpec(8, 10000.0, "half")
FACTORS = Weight("rope_freqs.weight", (4,))


def test_frequencies() -> None:
    np.testing.assert_allclose(inverse_frequencies(SPEC, None), [1, 0.1, 0.01, 0.001], rtol=1e-15)
    assert inverse_frequencies(SPEC, None).dtype == np.float64


def test_scalings_divide() -> None:
    factors = np.array([1, 2, 4, 8], np.float32)
    spec = SPEC._replace(divisors=(2.0,) * 4, factors=FACTORS)
    np.testing.assert_allclose(inverse_frequencies(spec, factors), [0.5, 0.025, 0.00125, 0.0000625], rtol=1e-15)


@pytest.mark.parametrize(
    ("spec", "factors"),
    [(SPEC, np.ones(4)), (SPEC._replace(factors=FACTORS), None), (SPEC._replace(factors=FACTORS), np.ones(8))],
)
def test_factors_belong_to_the_specification(spec: RopeSpec, factors: np.ndarray | None) -> None:
    with pytest.raises(ValueError, match="factors"):
        inverse_frequencies(spec, factors)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("dim", [8, 4])
def test_rotation_is_a_complex_product(pairing: str, dim: int) -> None:
    """Two heads of 8, the first `dim` elements rotated, at positions 3 to 7."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((5, 16))
    b = Builder()
    spec = RopeSpec(dim, 100.0, "half" if pairing == "half" else "interleaved")
    b.output("rotated", b.output_rows(b.rope(b.embed("table", 5, 16), 8, spec)))
    executor = ReferenceExecutor(b.build(), {"table.weight": table}.__getitem__, np.float64)
    state = executor.new_state()
    executor.forward(state, [0, 0, 0])
    found = executor.forward(state, range(5))["rotated"]

    heads = table.reshape(5, 2, 8)
    pairs = [(i, i + dim // 2) if pairing == "half" else (2 * i, 2 * i + 1) for i in range(dim // 2)]
    expected = heads.copy()
    for position, head in np.ndindex(5, 2):
        for i, (real, imaginary) in enumerate(pairs):
            turn = np.exp(1j * (position + 3) * 100.0 ** (-2 * i / dim))
            rotated = (heads[position, head, real] + 1j * heads[position, head, imaginary]) * turn
            expected[position, head, [real, imaginary]] = rotated.real, rotated.imag
    np.testing.assert_allclose(found, expected.reshape(5, 16), rtol=1e-12, atol=1e-12)
