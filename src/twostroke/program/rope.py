"""Where the angles of rotary position embedding come from. Owns the frequencies; rotates nothing."""

import numpy as np
import numpy.typing as npt

from twostroke.program.values import RopeSpec

Frequencies = npt.NDArray[np.float64]


def inverse_frequencies(spec: RopeSpec, factors: npt.NDArray[np.floating] | None) -> Frequencies:
    """Radians a position turns each rotated pair by, (dim/2,) in float64: base^(-2i/dim) for pair i (Su et al. 2021).

    `factors` (dim/2,) holds the values of `spec.factors`, which divide the frequencies as `divisors` do; None where the
    spec names none. An executor takes cosine and sine of position x frequency in float64, times `spec.magnitude`,
    and rounds them to its own type. Raises ValueError when factors are missing, not asked for, or of another shape.
    """
    frequencies: Frequencies = spec.base ** (-np.arange(0, spec.dim, 2, dtype=np.float64) / spec.dim)
    if spec.divisors is not None:
        frequencies /= np.array(spec.divisors, np.float64)
    if (factors is None) != (spec.factors is None):
        raise ValueError("RoPE factors are given if and only if the specification names them")
    if factors is not None:
        if factors.shape != frequencies.shape:
            raise ValueError(f"RoPE factors have shape {factors.shape}, not {frequencies.shape}")
        frequencies /= factors.astype(np.float64)
    return frequencies
