"""The scale, or scale and minimum, with which integer steps come closest to some values. Owns the search, no format.

Each row of (num_blocks, size) values is one problem. Candidate scales round the obvious one are tried; each gives
steps, the steps give the best scale by least squares, and that the steps of its own; the candidate with the smallest
error, weighted by `weights` (like the values), is kept. The idea is that of GGML's quantisers. `dtype` is what scales
and minimums are rounded to before they are compared.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
ScaleType = type[np.float16] | type[np.float32]

_SYMMETRIC_CANDIDATES = 5  # on each side of the obvious one
_AFFINE_CANDIDATES = 5
_STRIDE = 0.2  # in steps of the largest value


def symmetric(values: Floats, levels: int, weights: Floats) -> Floats:
    """Scales, (num_blocks, 1), for steps from -levels to levels - 1. A scale is 0 only where all values are."""
    largest = np.take_along_axis(values, np.abs(values).argmax(axis=1, keepdims=True), axis=1)
    search = Search(values, weights)
    search.consider(largest / np.float32(-levels), np.zeros_like(largest), -levels, levels - 1)
    for k in range(-_SYMMETRIC_CANDIDATES, _SYMMETRIC_CANDIDATES + 1):
        steps = to_steps(values, largest / np.float32(-levels - _STRIDE * k), -levels, levels - 1)
        weighted = weights * steps
        scale = _quotient(folded_sum(weighted * values), folded_sum(weighted * steps))
        search.consider(scale, np.zeros_like(scale), -levels, levels - 1)
    return search.scale


def affine(
    values: Floats, top: int, weights: Floats, *, dtype: ScaleType = np.float32, at_most_zero: bool = False
) -> tuple[Floats, Floats]:
    """Scales and minimums, (num_blocks, 1) each, for steps from 0 to `top`; value = scale * step + minimum.

    With `at_most_zero`, no minimum is above 0.
    """
    low = values.min(axis=1, keepdims=True)
    low = np.minimum(low, np.float32(0)) if at_most_zero else low
    span = values.max(axis=1, keepdims=True) - low
    search = Search(values, weights)
    search.consider(_rounded(span / np.float32(top), dtype), _rounded(low, dtype), 0, top)
    for scale, minimum in _least_squares(values, weights, low, span, top):
        if at_most_zero:
            above = minimum > 0
            scale = np.where(above, search.scale, scale)
            minimum = np.where(above, search.minimum, minimum)
        search.consider(_rounded(scale, dtype), _rounded(minimum, dtype), 0, top)
    return search.scale, search.minimum


def to_steps(values: Floats, scale: Floats, lowest: int, highest: int, minimum: Floats | None = None) -> Floats:
    """The nearest steps, as whole floats within the bounds; 0 (or the nearest bound) where the scale is 0."""
    shifted = values if minimum is None else values - minimum
    divisor = np.where(scale == 0, np.float32(np.inf), scale)
    steps: Floats = np.clip(np.rint(shifted / divisor), np.float32(lowest), np.float32(highest))
    return steps


class Search:
    """The best of the scales and minimums considered, (num_blocks, 1) each, row by row; of equals the first."""

    def __init__(self, values: Floats, weights: Floats) -> None:
        self._values, self._weights = values, weights
        self._error = np.full((len(values), 1), np.inf, np.float32)
        self.scale = np.zeros((len(values), 1), np.float32)
        self.minimum = np.zeros((len(values), 1), np.float32)

    def consider(self, scale: Floats, minimum: Floats, lowest: int, highest: int) -> None:
        """Keep these where their nearest steps have a smaller error."""
        steps = to_steps(self._values, scale, lowest, highest, minimum)
        error = folded_sum(self._weights * (scale * steps + minimum - self._values) ** 2)
        better = error < self._error
        self._error = np.where(better, error, self._error)
        self.scale = np.where(better, scale, self.scale)
        self.minimum = np.where(better, minimum, self.minimum)


def _least_squares(
    values: Floats, weights: Floats, low: Floats, span: Floats, top: int
) -> Iterator[tuple[Floats, Floats]]:
    """For each candidate scale, the scale and minimum that suit its steps best."""
    sum_w, sum_x = folded_sum(weights), folded_sum(weights * values)
    for k in range(-_AFFINE_CANDIDATES, _AFFINE_CANDIDATES + 1):
        steps = to_steps(values, span / np.float32(top + _STRIDE * k), 0, top, low)
        weighted = weights * steps
        sum_l, sum_ll, sum_xl = folded_sum(weighted), folded_sum(weighted * steps), folded_sum(weighted * values)
        determinant = sum_w * sum_ll - sum_l * sum_l
        scale = _quotient(sum_w * sum_xl - sum_x * sum_l, determinant)
        minimum = _quotient(sum_ll * sum_x - sum_l * sum_xl, determinant)
        yield scale, minimum


def _quotient(dividend: Floats, divisor: Floats) -> Floats:
    return np.divide(dividend, divisor, out=np.zeros_like(dividend), where=divisor > 0)


def _rounded(values: Floats, dtype: ScaleType) -> Floats:
    return values.astype(dtype).astype(np.float32)


def folded_sum(values: Floats) -> Floats:
    """Sums of rows, (num_blocks, 1), halves folded onto each other: an order that any machine can keep."""
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        values = values[:, :half] + values[:, half:]
    return values
