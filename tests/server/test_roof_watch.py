"""Roofs that answers came out above are measured again, when nothing runs, and only then."""

import asyncio

from twostroke.roofline.hardware import HardwareSpec
from twostroke.server.roof_watch import RoofWatch, higher


def spec(rate: float, flops: float = 1e12) -> HardwareSpec:
    return HardwareSpec("here", ((1000, rate),), {"f32": flops})


def test_an_answer_above_a_roof_has_it_measured_again_once() -> None:
    async def scene() -> None:
        measured: list[int] = []
        busy = [True]

        def measure() -> HardwareSpec:
            measured.append(1)
            return spec(30e9, 1e11)

        watch = RoofWatch(spec(10e9), measure, lambda: not busy[0])
        watch.saw(1.0)
        watch.saw(None)
        await asyncio.sleep(0.01)
        assert watch._again is None
        watch.saw(1.5)
        watch.saw(1.6)
        await asyncio.sleep(0.05)
        assert not measured  # something runs
        busy[0] = False
        while watch._again is not None:
            await asyncio.sleep(0.01)
        assert measured == [1] and watch.hardware == spec(30e9)  # the higher of each
        watch.saw(1.5)
        assert watch._again is None  # not again so soon

    asyncio.run(scene())


def test_nothing_is_measured_where_nothing_was() -> None:
    async def scene() -> None:
        watch = RoofWatch()
        watch.saw(2.0)
        assert watch._again is None and watch.hardware is None

    asyncio.run(scene())


def test_the_higher_rate_of_each_kind_counts() -> None:
    assert higher(spec(10.0, 5.0), spec(8.0, 6.0)) == spec(10.0, 6.0)
