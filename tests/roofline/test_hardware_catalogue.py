"""The hardware catalogue: how it is read and looked up. Right values are those of the vendors' own tables."""

from itertools import pairwise
from pathlib import Path

import pytest

from twostroke.errors import HardwareNotFoundError
from twostroke.roofline.device import ARITHMETIC_TYPES, Device
from twostroke.roofline.hardware_catalogue import find_hardware, load_hardware

DEVICES = load_hardware()
GIB = 1 << 30


def test_what_people_ask_about_is_there() -> None:
    assert len(DEVICES) >= 80
    assert {device.kind for device in DEVICES.values()} >= {"gpu", "apple", "cpu", "soc", "phone"}


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.name)
def test_every_fact_is_cited(device: Device) -> None:
    facts = {"bandwidth"}
    facts |= {"memory"} if device.memory_bytes else set()
    facts |= {"flops"} if device.flops else set()
    facts |= {"links"} if device.links else set()
    assert set(device.sources) == facts
    assert all(len(text) > 10 for text in device.sources.values())
    assert set(device.flops) <= set(ARITHMETIC_TYPES)
    assert not device.memory_sizes or device.memory_bytes == max(device.memory_sizes)


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.name)
def test_rates_are_plausible_and_dense(device: Device) -> None:
    """Catches a slipped unit and a sparse figure: each narrower type at most doubles the rate, GB10's FP4 aside."""
    assert 10e9 < device.bandwidth <= 8e12
    narrowing = [device.flops[kind] for kind in ("bf16", "fp8", "fp4") if kind in device.flops]
    assert all(low <= high <= 4 * low for low, high in pairwise(narrowing))
    if {"fp32", "fp16", "bf16"} & set(device.flops):
        ridge = device.spec().ridge_point(1e9)
        assert 5 < ridge < 900


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.name)
def test_a_device_is_found_by_its_names(device: Device) -> None:
    assert find_hardware(device.name, DEVICES) == device
    for alias in device.aliases:
        assert alias in find_hardware(alias.upper(), DEVICES).aliases


# The peaks that the vendors print, where the catalogue computes them from units, clock and rate.
@pytest.mark.parametrize(
    ("name", "kind", "teraflops"),
    [
        ("RTX 2080 Ti", "fp16", 56.9),
        ("RTX 2080 Ti", "int8", 227.7),
        ("RTX 3080 10GB", "fp16", 59.5),
        ("RTX 3090", "fp32", 35.6),
        ("RTX 3090", "fp16", 71.2),
        ("RTX A6000", "fp16", 154.8),
        ("RTX 4090", "fp32", 82.6),
        ("RTX 4090", "fp16", 165.2),
        ("RTX 4090", "fp8", 330.3),
        ("RTX 6000 Ada", "fp16", 364.2),
        ("RTX 5080", "fp32", 56.3),
        ("RTX 5090", "bf16", 209.5),
        ("RTX 5090", "fp4", 1676.0),
        ("RTX PRO 6000 Blackwell", "fp16", 503.8),
        ("RX 7900 XTX", "fp16", 122.8),
        ("RX 9070 XT", "fp32", 48.7),
        ("RX 9070 XT", "fp8", 389.0),
        ("Arc B580", "int8", 233.0),
        ("A100 SXM 80GB", "bf16", 312.0),
        ("Core Ultra 9 285H", "int8", 77.0),
        ("Grace CPU", "fp32", 7.1),
        ("Apple M1 (8-core GPU)", "fp32", 2.6),
        ("Apple M2 Ultra (76-core GPU)", "fp32", 27.2),
    ],
)
def test_flops_are_the_vendors(name: str, kind: str, teraflops: float) -> None:
    assert DEVICES[name].flops[kind] == pytest.approx(teraflops * 1e12, rel=7e-3)


def test_unlike_cores_add_up() -> None:
    assert DEVICES["Core i9-13900K"].flops == {"fp32": pytest.approx((8 * 32 * 5.8 + 16 * 16 * 4.3) * 1e9)}


def test_bandwidth_from_bus_width_and_rate() -> None:
    assert DEVICES["Strix Halo"].bandwidth == 256e9
    assert DEVICES["Raspberry Pi 5"].bandwidth == pytest.approx(17.1e9, rel=2e-3)
    assert DEVICES["EPYC 9654"].bandwidth == 460.8e9


def test_pcie_carries_128_of_130_bits() -> None:
    assert DEVICES["RTX 4090"].links["pcie"] == pytest.approx(31.5e9, rel=1e-3)


def test_memory_in_a_name_chooses_among_sizes() -> None:
    assert find_hardware("M2 Ultra").memory_bytes == 192 * GIB
    assert find_hardware("apple m2 ultra 64 GB").memory_bytes == 64 * GIB
    with pytest.raises(HardwareNotFoundError, match=r"comes with 64, 128, 192 GB of memory, not 65 GB"):
        find_hardware("M2 Ultra 65GB")


def test_memory_that_is_bought_apart_has_any_size_up_to_the_most() -> None:
    assert find_hardware("Ryzen 9 7950X 48GB").memory_bytes == 48 * GIB
    with pytest.raises(HardwareNotFoundError, match=r"takes up to 128 GB of memory, not 129 GB"):
        find_hardware("Ryzen 9 7950X 129GB")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("M4 Max", "Apple M4 Max (40-core GPU)"),
        ("M4 Max 36GB", "Apple M4 Max (32-core GPU)"),
        ("A100 40GB", "A100 SXM 40GB"),
        ("A100", "A100 SXM 80GB"),
        ("RTX 3080 12GB", "RTX 3080 12GB"),
        ("RTX 3080", "RTX 3080 10GB"),
    ],
)
def test_memory_in_a_name_chooses_among_variants(name: str, found: str) -> None:
    assert find_hardware(name, DEVICES).name == found


def test_memory_rate_in_a_name_replaces_the_vendors() -> None:
    assert find_hardware("Core i9-13900K DDR5-6400 dual channel").bandwidth == 102.4e9
    assert find_hardware("Xeon E5-2690, 4ch DDR3-1600 64GB").bandwidth == 51.2e9


@pytest.mark.parametrize(
    ("name", "found", "count"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX 4090", 1),
        ("RTX 4090 24GB x4", "RTX 4090", 4),
        ("2x rtx-3090", "RTX 3090", 2),
        ("M1 Ultra (48 GPU Core) 64GB", "Apple M1 Ultra (48-core GPU)", 1),
        ("Apple M3 Max 30c GPU", "Apple M3 Max (30-core GPU)", 1),
        ("Raspberry Pi 5 - 8GB", "Raspberry Pi 5", 1),
        ("Raspberry Pi 5 - 8GB (AMD RX 7600 (Vulkan))", "RX 7600", 1),
        ("Framework 13 (Ryzen AI 5 340 16GB)", "Ryzen AI 5 340", 1),
    ],
)
def test_spellings_and_counts(name: str, found: str, count: int) -> None:
    device = find_hardware(name, DEVICES)
    assert (device.name, device.count) == (found, count)


@pytest.mark.parametrize("name", ["RTX 4091", "GTX 1060 + something", "", "()", "8GB"])
def test_what_is_not_known_is_not_guessed(name: str) -> None:
    with pytest.raises(HardwareNotFoundError, match="no hardware"):
        find_hardware(name, DEVICES)


def test_the_nearest_names_are_suggested() -> None:
    with pytest.raises(HardwareNotFoundError, match=r"no hardware 'RTX 4091' in the catalogue; nearest: .*RTX 4090"):
        find_hardware("RTX 4091")


def test_a_device_gives_its_roofs() -> None:
    spec = DEVICES["RTX 4090"].spec()
    assert spec.bytes_per_s_at(1e9) == 1008e9
    assert spec.peak_flops == pytest.approx(165.2e12, rel=1e-3)


def test_a_fact_is_cited_or_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hardware.toml"
    entry = '[devices]\nBox = { kind = "gpu", memory_gib = 8, bandwidth_gb_s = 100, source = { bandwidth = "s" } }'
    path.write_text(f'[sources]\ns = "somewhere"\n[architectures]\n{entry}\n', "utf-8")
    with pytest.raises(KeyError, match="memory"):
        load_hardware(path)
