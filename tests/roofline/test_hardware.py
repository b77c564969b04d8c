"""Interpolation of bandwidth, kinds of arithmetic, and refusal of numbers that are none."""

import math

import pytest

from twostroke.errors import ConfigError
from twostroke.roofline.hardware import HardwareSpec

MIB = 2**20


def make(*points: tuple[int, float], **flops: float) -> HardwareSpec:
    return HardwareSpec("box", points, flops)


def test_bandwidth_is_linear_in_the_logarithm_of_the_set() -> None:
    spec = make((2 * MIB, 200e9), (32 * MIB, 100e9))
    assert spec.bytes_per_s_at(8 * MIB) == pytest.approx(150e9)  # two of four doublings
    assert spec.bytes_per_s_at(2 * MIB) == 200e9
    assert spec.bytes_per_s_at(32 * MIB) == pytest.approx(100e9)


def test_bandwidth_is_flat_beyond_the_points() -> None:
    spec = make((2 * MIB, 200e9), (32 * MIB, 100e9))
    assert spec.bytes_per_s_at(0) == spec.bytes_per_s_at(1) == 200e9
    assert spec.bytes_per_s_at(2**50) == 100e9
    assert make((MIB, 7.0)).bytes_per_s_at(5) == 7.0


def test_peak_is_the_faster_arithmetic_and_the_ridge_point_follows() -> None:
    spec = make((MIB, 50.0), **{"f32": 100.0, "16bit": 200.0, "fp8": 9e9})
    assert (spec.peak_flops, spec.flops_for("f32"), spec.ridge_point(MIB)) == (200.0, 100.0, 4.0)
    assert make((MIB, 50.0), **{"f32": 300.0, "16bit": 200.0}).peak_flops == 300.0


def test_unknown_arithmetic_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no FLOP/s of 'int4' known \(known: f32\)"):
        make((MIB, 1.0), f32=1.0).flops_for("int4")
    with pytest.raises(ConfigError, match="16bit"):
        _ = make((MIB, 1.0), fp8=1.0).peak_flops


@pytest.mark.parametrize("points", [(), ((2, 1.0), (1, 1.0)), ((2, 1.0), (2, 1.0))])
def test_points_must_ascend(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ConfigError, match="ascending"):
        make(*points)


@pytest.mark.parametrize("number", [0.0, -1.0, math.inf, math.nan])
def test_numbers_must_be_positive_and_finite(number: float) -> None:
    with pytest.raises(ConfigError, match="box"):
        make((MIB, number))
    with pytest.raises(ConfigError, match="box"):
        make((MIB, 1.0), f32=number)
