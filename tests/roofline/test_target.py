"""Hardware to plan for: catalogue entries, one's own figures, files."""

from pathlib import Path

import pytest

from twostroke.errors import ConfigError
from twostroke.roofline.efficiency import WeightMix, find_efficiency, hardware_class, weight_class
from twostroke.roofline.hardware_catalogue import load_hardware
from twostroke.roofline.target import custom_target, find_target, with_memory


def test_a_catalogue_device_keeps_its_roofs() -> None:
    target = find_target("2x RTX 4090")
    assert (target.kind, target.count, target.memory_bytes) == ("nvidia", 2, 24 << 30)
    assert target.spec.bytes_per_s_at(1) == 1008e9
    assert target.spec.flops["8bit"] > 3 * target.spec.flops["16bit"] > 0
    assert target.link_byte_s == pytest.approx(31.5e9, rel=0.01)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rtx 3060", "nvidia"),
        ("dgx spark", "nvidia"),
        ("h200", "nvidia-datacenter"),
        ("mi300x", "amd-datacenter"),
        ("rx 7900 xtx", "amd"),
        ("strix halo", "amd"),
        ("arc b580", "intel"),
        ("m2 ultra 76c", "apple"),
        ("raspberry pi 5", "cpu"),
        ("ryzen 9 7950x", "cpu"),
    ],
)
def test_kinds_of_hardware(name: str, kind: str) -> None:
    assert find_target(name).kind == kind


def test_every_device_is_of_a_kind_that_some_engine_was_measured_on_or_says_so() -> None:
    for device in load_hardware().values():
        kind = hardware_class(device.name, device.kind)
        found = find_efficiency("llama.cpp", kind, WeightMix("k_quant"))
        assert found.name == f"llama.cpp/{kind}" or "nobody measured" in found.source


@pytest.mark.parametrize(
    ("name", "kind"),
    [("bf16", "float"), ("F16", "float"), ("q4_k_m", "k_quant"), ("UD-Q4_K_XL", "k_quant"), ("q8_0", "quantised")],
)
def test_classes_of_weights(name: str, kind: str) -> None:
    assert weight_class(name) == kind
    assert weight_class(name, mixture=True) == "mixture"


def test_a_file_of_ones_own_figures(tmp_path: Path) -> None:
    path = tmp_path / "box.toml"
    path.write_text('bandwidth_gb_s = 80\nmemory_gib = 64\ntflops = 2.5\nkind = "cpu"\n')
    target = find_target(str(path))
    assert (target.name, target.memory_bytes, target.spec.peak_flops) == ("box", 64 << 30, 2.5e12)
    assert with_memory(target, 1 << 30).memory_bytes == 1 << 30
    path.write_text("memory_gib = 64\n")
    with pytest.raises(ConfigError, match="bandwidth_gb_s"):
        find_target(str(path))
    path.write_text("not toml")
    with pytest.raises(ConfigError, match=r"box\.toml"):
        find_target(str(path))


@pytest.mark.parametrize("value", [0, -1, "80", True, float("inf"), float("nan")])
def test_figures_are_numbers_above_0(value: object) -> None:
    with pytest.raises(ConfigError, match="bandwidth_gb_s"):
        custom_target({"bandwidth_gb_s": value})
