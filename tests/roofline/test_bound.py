"""Which resource binds a phase, and how close it came."""

from dataclasses import asdict

import pytest

from twostroke.roofline.bound import attain, raised_to
from twostroke.roofline.hardware import HardwareSpec

BOX = HardwareSpec("box", ((100, 200.0), (10_000, 50.0)), {"f32": 400.0, "16bit": 1000.0})


def test_decode_reads_and_prefill_computes() -> None:
    decode = attain(2000, 1000, 40.0, working_set_bytes=10_000, hardware=BOX)
    assert (decode.bound, decode.roof_byte_s, decode.roof_flop_s) == ("memory", 50.0, 1000.0)
    assert (decode.achieved_byte_s, decode.achieved_flop_s) == (25.0, 50.0)
    assert decode.roof_fraction == pytest.approx(0.5)

    prefill = attain(100_000, 1000, 125.0, working_set_bytes=10_000, hardware=BOX)
    assert prefill.bound == "compute"
    assert prefill.roof_fraction == pytest.approx(0.8)


def test_the_working_set_decides_the_memory_roof() -> None:
    small, large = (attain(2000, 1000, 40.0, working_set_bytes=size, hardware=BOX) for size in (100, 10_000))
    assert (small.roof_byte_s, large.roof_byte_s) == (200.0, 50.0)
    assert small.roof_fraction is not None
    assert large.roof_fraction == pytest.approx(4 * small.roof_fraction)


def test_the_bound_changes_at_the_ridge_point() -> None:
    ridge = BOX.ridge_point(10_000)
    below, above = (attain(ridge * 100 * k, 100, 9.0, working_set_bytes=10_000, hardware=BOX) for k in (0.99, 1.01))
    assert (below.bound, above.bound) == ("memory", "compute")


@pytest.mark.parametrize("totals", [(0, 0, 0.0), (0, 0, 1.0), (10, 10, 0.0)])
def test_a_phase_that_did_not_run_has_roofs_but_no_bound(totals: tuple[float, float, float]) -> None:
    idle = attain(*totals, working_set_bytes=100, hardware=BOX)
    assert (idle.bound, idle.roof_fraction, idle.achieved_byte_s, idle.achieved_flop_s) == (None, None, 0.0, 0.0)
    assert idle.roof_byte_s == 200.0


def test_field_names_are_the_contract_of_run_json() -> None:
    assert list(asdict(attain(1, 1, 1, working_set_bytes=1, hardware=BOX))) == [
        "achieved_flop_s",
        "achieved_byte_s",
        "roof_flop_s",
        "roof_byte_s",
        "bound",
        "roof_fraction",
    ]


def test_what_was_reached_is_a_roof() -> None:
    """Of the resource that bound each phase, and of no other; nothing falls."""
    slow = HardwareSpec("probed beside neighbours", ((100, 10.0),), {"16bit": 100.0, "f32": 50.0})
    decode = attain(10.0, 300.0, 10.0, working_set_bytes=100, hardware=slow)  # 30 bytes/s
    prefill = attain(900.0, 5.0, 1.0, working_set_bytes=100, hardware=slow)  # 900 FLOP/s
    assert decode.roof_fraction == 3.0
    assert prefill.roof_fraction == 9.0
    raised = raised_to(slow, (prefill, None, decode))
    assert raised.read_bandwidth == ((100, 30.0),)
    assert raised.flops == {"16bit": 900.0, "f32": 50.0}
    assert attain(10.0, 300.0, 10.0, working_set_bytes=100, hardware=raised).roof_fraction == 1.0
    modest = attain(1.0, 50.0, 10.0, working_set_bytes=100, hardware=slow)
    assert raised_to(slow, (modest,)) == slow
