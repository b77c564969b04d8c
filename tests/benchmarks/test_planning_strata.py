"""How the planner is scored: strata have enough cases, and bands hold of them what they say."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from planning_strata import LEAST, band, score, stratify


def cases(**counts: int) -> list[Any]:
    """So many cases of each "run__engine__kind"."""
    return [SimpleNamespace(group=tuple(name.split("__"))) for name, count in counts.items() for _ in range(count)]


def test_a_small_stratum_joins_the_smallest_of_its_engine_and_run() -> None:
    counts = {"decode__a__gpu": 40, "decode__a__cpu": 20, "decode__a__npu": 3, "decode__b__gpu": 13}
    names = stratify(cases(**counts, prefill__a__npu=12))
    assert names["decode", "a", "npu"] == names["decode", "a", "cpu"] == "decode: a on cpu, npu"
    assert names["decode", "a", "gpu"] == "decode: a on gpu"
    assert names["prefill", "a", "npu"] == "prefill: a on npu"


def test_what_has_no_neighbour_of_its_engine_joins_another_of_its_run() -> None:
    names = stratify(cases(decode__a__gpu=4, decode__b__gpu=30, prefill__a__gpu=2))
    assert names["decode", "a", "gpu"] == names["decode", "b", "gpu"] == "decode: b on gpu; a on gpu"
    assert names["prefill", "a", "gpu"] == "prefill: a on gpu"


@pytest.mark.parametrize("bias", [0.3, 0.9, 1.0, 1.1, 4.0])
def test_a_band_holds_75_to_85_percent_of_any_stratum_and_the_prediction(bias: float) -> None:
    draw = np.random.default_rng(3)
    for count in range(LEAST, 90):
        ratios = bias * np.exp(0.3 * draw.standard_normal(count))
        low, high = band(ratios.tolist())
        assert low <= 1 <= high
        assert 0.75 <= np.mean((low <= ratios) & (ratios <= high)) <= 0.85


def test_a_band_of_other_hardware_does_not_know_its_own() -> None:
    """Twelve cases near 1 on one device, one at 3 on another: its own band has it or not, that of the other has not."""
    group = ("decode", "a", "gpu")
    near, far = (SimpleNamespace(group=group, device=SimpleNamespace(name=name)) for name in ("near", "far"))
    found = score([*((near, 0.9 + 0.02 * i) for i in range(12)), (far, 3.0)])  # type: ignore[list-item]
    assert found[-1].held_by_others is False
    assert all(each.of_others is None for each in found[:-1])  # one case is no band
