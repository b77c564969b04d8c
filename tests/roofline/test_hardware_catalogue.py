"""The hardware catalogue: how it is read and looked up. Right values are those of the vendors' own tables."""

import pytest

from twostroke.errors import HardwareNotFoundError
from twostroke.roofline.device import ARITHMETIC_TYPES, Device
from twostroke.roofline.hardware_catalogue import find_hardware, load_hardware

DEVICES = load_hardware()
GIB = 1 << 30


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.name)
def test_every_fact_is_cited(device: Device) -> None:
    facts = {"bandwidth"}
    facts |= {"memory"} if device.memory_sizes else set()
    facts |= {"flops"} if device.flops else set()
    facts |= {"links"} if device.links else set()
    assert set(device.sources) == facts
    assert all(len(text) > 10 for text in device.sources.values())
    assert set(device.flops) <= set(ARITHMETIC_TYPES)
    assert device.memory_bytes is None or device.memory_bytes == max(device.memory_sizes)


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.name)
def test_a_device_is_found_by_its_names(device: Device) -> None:
    assert find_hardware(device.name, DEVICES) == device
    for alias in device.aliases:
        assert find_hardware(alias.upper(), DEVICES).name == device.name


@pytest.mark.parametrize(
    ("name", "kind", "teraflops"),
    [
        ("RTX 3090", "fp16", 71.2),
        ("RTX 3090", "int8", 284.7),
        ("RTX 4090", "fp32", 82.6),
        ("RTX 4090", "fp16", 165.2),
        ("RTX 4090", "fp8", 330.3),
        ("RTX 5090", "bf16", 209.5),
        ("RTX 5090", "fp4", 1676.0),
        ("A100 SXM 80GB", "bf16", 312.0),
    ],
)
def test_flops_are_the_vendors(name: str, kind: str, teraflops: float) -> None:
    assert DEVICES[name].flops[kind] == pytest.approx(teraflops * 1e12, rel=2e-3)


def test_bandwidth_from_bus_width_and_rate() -> None:
    assert DEVICES["Strix Halo"].bandwidth == 256e9
    assert DEVICES["Raspberry Pi 5"].bandwidth == pytest.approx(17.1e9, rel=2e-3)


def test_pcie_carries_128_of_130_bits() -> None:
    assert DEVICES["RTX 4090"].links["pcie"] == pytest.approx(31.5e9, rel=1e-3)


def test_memory_in_a_name_chooses_among_sizes() -> None:
    assert find_hardware("M2 Ultra").memory_bytes == 192 * GIB
    assert find_hardware("apple m2 ultra 64 GB").memory_bytes == 64 * GIB
    with pytest.raises(HardwareNotFoundError, match=r"comes with 64, 128, 192 GB of memory, not 65"):
        find_hardware("M2 Ultra 65GB")


@pytest.mark.parametrize(
    ("name", "found", "count"),
    [("NVIDIA GeForce RTX 4090", "RTX 4090", 1), ("RTX 4090 24GB x4", "RTX 4090", 4), ("2x rtx-3090", "RTX 3090", 2)],
)
def test_spellings_and_counts(name: str, found: str, count: int) -> None:
    device = find_hardware(name)
    assert (device.name, device.count) == (found, count)


def test_the_nearest_names_are_suggested() -> None:
    with pytest.raises(HardwareNotFoundError, match="no hardware 'RTX 4091' in the catalogue; nearest: RTX 4090"):
        find_hardware("RTX 4091")


def test_a_device_gives_its_roofs() -> None:
    spec = DEVICES["RTX 4090"].spec()
    assert spec.bytes_per_s_at(1e9) == 1008e9
    assert spec.peak_flops == pytest.approx(165.2e12, rel=1e-3)
