"""Weights outside the memory: what stays, what is fetched, and what that costs."""

import pytest

from twostroke.errors import ConfigError, NotEnoughMemoryError
from twostroke.roofline.offload import Offload, offload_to
from twostroke.roofline.planned_model import find_planned
from twostroke.roofline.planner import Plan, Scenario, again, make_plan
from twostroke.roofline.target import custom_target, find_target

DISK = Offload("disk", 3e9, None, "as given")


def on(memory_gib: float, model: str = "qwen3-30b-a3b", offload: Offload | None = DISK) -> Plan:
    target = custom_target({"bandwidth_gb_s": 60, "memory_gib": memory_gib, "tflops": 1})
    return make_plan(find_planned(model, "q4_k_m"), target, Scenario(offload=offload))


def test_experts_are_cached_as_far_as_there_is_room() -> None:
    found = on(6)
    assert found.placed is not None and found.memory.fits
    assert found.memory.total_bytes == pytest.approx(6 * 2**30, rel=1e-6)
    experts = found.model.expert_bytes
    kept = found.placed.resident_bytes - (found.model.weight_bytes - experts)
    assert found.placed.hits == pytest.approx(kept / experts)
    outside = (1 - found.placed.hits) * found.decode.work.expert_bytes
    assert found.decode.seconds.storage == pytest.approx(outside / 3e9)


def test_better_caching_is_faster_and_all_of_it_in_memory_is_fastest() -> None:
    plain = on(6)
    lucky = again(plain, offload=Offload("disk", 3e9, 0.95, "as given"))
    assert on(64).tok_s > lucky.tok_s > plain.tok_s > on(4).tok_s
    assert on(64).placed is None


def test_dense_weights_that_do_not_fit_are_read_each_step() -> None:
    found = on(3, "llama-3.1-8b")
    assert found.placed is not None
    outside = found.model.weight_bytes - found.placed.resident_bytes
    assert found.decode.seconds.storage == pytest.approx(outside / 3e9, rel=0.07)  # the embedding is not read whole
    assert found.decode.low <= found.decode.total <= found.decode.high


def test_without_room_for_the_rest_it_is_refused() -> None:
    with pytest.raises(NotEnoughMemoryError, match="besides weights"):
        on(0.2)


def test_rates_are_the_hardwares_or_given() -> None:
    assert offload_to("host", find_target("rtx 4090"), None).byte_s == pytest.approx(31.5e9, rel=0.01)
    assert offload_to("disk:7", find_target("rtx 4090"), None).byte_s == 7e9
    for text in ("disk", "tape", "disk:fast", "host:-1"):
        with pytest.raises(ConfigError):
            offload_to(text, find_target("rtx 4090"), None)
    with pytest.raises(ConfigError, match="from 0 to 1"):
        offload_to("disk:7", find_target("rtx 4090"), 1.5)
