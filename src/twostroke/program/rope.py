"""Where the angles of rotary position embedding come from. Owns the frequencies; rotates nothing."""

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError
from twostroke.program.values import RopeSpec

_LEAST_FACTOR = 1e-15
Frequencies = npt.NDArray[np.float64]


def inverse_frequencies(spec: RopeSpec, factors: npt.NDArray[np.floating] | None) -> Frequencies:
    """Radians a position turns each rotated pair by, (dim/2,) in float64: base^(-2i/dim) for pair i (Su et al. 2021).

    `factors` (dim/2,) holds the values of `spec.factors`, which divide the frequencies as `divisors` do; None where the
    spec names none. An executor takes cosine and sine of position x frequency in float64, times `spec.magnitude`, and
    rounds them to its own type. Raises ValueError when factors are missing, not asked for, or of another shape,
    ModelFileError for factors that no frequency can be divided by.
    """
    frequencies: Frequencies = spec.base ** (-np.arange(0, spec.dim, 2, dtype=np.float64) / spec.dim)
    if spec.divisors is not None:
        frequencies /= np.array(spec.divisors, np.float64)
    if factors is None and spec.factors is None:
        return frequencies
    if factors is None or spec.factors is None:
        raise ValueError("RoPE factors are given if and only if the specification names them")
    if factors.shape != frequencies.shape:
        raise ValueError(f"RoPE factors have shape {factors.shape}, not {frequencies.shape}")
    if not np.all((factors >= _LEAST_FACTOR) & (factors <= 1 / _LEAST_FACTOR)):  # so is a NaN
        raise ModelFileError(f"tensor {spec.factors.name!r} has RoPE factors that are not above 0 and finite")
    frequencies /= factors.astype(np.float64)
    return frequencies
