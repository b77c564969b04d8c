"""Reading and arithmetic of one op may go on together; what an op needs is never undercut."""

import math

import pytest

from twostroke.roofline.step_time import Seconds, overlapped

PARTS = Seconds(
    step=1.0,
    layer=2.0,
    request=3.0,
    weights=6.0,
    experts=2.0,
    kv=5.0,
    generated=1.0,
    tiled=2.0,
    prompt=2.0,
    expanded=1.0,
    attention=7.0,
    prompt_attention=5.0,
    activations=4.0,
    storage=9.0,
)


def test_an_overlap_of_1_is_the_sum() -> None:
    assert overlapped(PARTS, 1.0) == PARTS


def test_an_overlap_of_2_is_the_root_of_squares_of_linears_and_of_attention() -> None:
    found = overlapped(PARTS, 2.0)
    assert found.weights + found.experts + found.linears == pytest.approx(math.hypot(8, 6))
    assert found.kv + found.attention + found.prompt_attention == pytest.approx(math.hypot(5, 12))
    assert (found.overhead, found.activations, found.storage) == (6.0, 4.0, 9.0)
    assert found.weights / found.experts == pytest.approx(3)


@pytest.mark.parametrize("overlap", [1.0, 1.5, 3.0, 100.0])
def test_no_overlap_is_faster_than_the_longer_of_both(overlap: float) -> None:
    found = overlapped(PARTS, overlap)
    assert found.weights + found.experts + found.linears >= 8
    assert found.kv + found.attention + found.prompt_attention >= 12
    assert found.total <= PARTS.total


def test_what_takes_no_time_overlaps_with_nothing() -> None:
    nothing = Seconds(*[0.0] * 13)
    assert overlapped(nothing, 3.0) == nothing
