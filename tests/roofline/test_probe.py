"""Probing: the real core briefly, for what its numbers must be whatever the machine; a counted core for what is kept.

No test here depends on how fast the machine is.
"""

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from twostroke.cli import probe as probe_command
from twostroke.errors import ConfigError
from twostroke.native.probe import probe_flops, probe_isas, probe_read
from twostroke.roofline import probe as probing
from twostroke.roofline.hardware import HardwareSpec
from twostroke.roofline.probe import MIB, machine_key, probe, roofs_of_model
from twostroke.roofline.roofs import RoofFile

NOW = datetime(2030, 5, 1, tzinfo=UTC)


class CountedCore:
    """Stands in for the core: notes what was asked, and answers with rates that a test can change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.kinds: list[str] = []
        self.seconds = 0.0
        self.byte_s = 10.0
        self.flop_s = {"f32": 1000.0, "16bit": 2000.0}
        monkeypatch.setattr(probing, "probe_read", self.read)
        monkeypatch.setattr(probing, "probe_flops", self.flops)
        monkeypatch.setattr(probing, "probe_isas", lambda isa: ("scalar", "avx2", "avx512") if isa is None else (isa,))

    def read(self, isa: str, num_threads: int, num_bytes: int, prefetch_bytes: int, seconds: float) -> float:
        assert isa in ("avx512", "scalar")
        self.sizes.append(num_bytes)
        self.seconds += seconds
        return self.byte_s

    def flops(self, isa: str, num_threads: int, kind: str, seconds: float) -> float:
        self.kinds.append(kind)
        self.seconds += seconds
        return self.flop_s[kind] * (1 if isa == "avx2" else 0.5)


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CountedCore:
    return CountedCore(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> RoofFile:
    return RoofFile(tmp_path / "roofs.json", lambda: NOW)


# --- what is measured and what is kept --------------------------------------------------------------------------------


def of_model(core: CountedCore, file: RoofFile, **settings: Any) -> HardwareSpec:
    """The roofs of a model of 90 MiB that is read at the core's rate."""
    asked = {"num_threads": 2, "budget_s": 0.25, **settings}
    return roofs_of_model(lambda _: core.byte_s, 90 * MIB, file=file, **asked)


def test_the_first_roofs_take_a_moment_the_next_none(core: CountedCore, file: RoofFile) -> None:
    first = of_model(core, file)
    assert core.sizes == []  # no memory of its own
    assert 0 < core.seconds <= 0.5
    assert (first.bytes_per_s_at(90 * MIB), first.peak_flops, first.isa) == (10.0, 2000.0, "avx512")
    assert first.probed_at == "2030-05-01T00:00:00+00:00"
    core.kinds.clear()
    assert of_model(core, file) == first
    assert core.kinds == []


@pytest.mark.parametrize("change", [{"num_threads": 3}, {"isa": "scalar"}])
def test_threads_and_isa_have_roofs_of_their_own(core: CountedCore, file: RoofFile, change: dict[str, Any]) -> None:
    of_model(core, file)
    core.kinds.clear()
    of_model(core, file, **change)
    assert set(core.kinds) == {"16bit", "f32"}


def test_refresh_raises_and_never_lowers(core: CountedCore, file: RoofFile) -> None:
    of_model(core, file)
    for rate, expected in ((1900.0, 2000.0), (2400.0, 2400.0)):
        core.flop_s["16bit"] = rate
        assert of_model(core, file).peak_flops == 2000.0
        assert of_model(core, file, refresh=True).peak_flops == expected


def test_a_loaded_model_is_read_anew_and_arithmetic_is_kept(core: CountedCore, file: RoofFile) -> None:
    rates = iter((5.0, 3.0))
    asked: list[float] = []

    def read(seconds: float) -> float:
        asked.append(seconds)
        return next(rates)

    for expected in (5.0, 3.0):
        spec = roofs_of_model(read, 90 * MIB, 2, file=file, budget_s=0.25)
        assert spec.bytes_per_s_at(90 * MIB) == expected
        assert set(spec.flops) == {"f32", "16bit"}
    assert asked == [0.25, 0.25]
    assert core.sizes == []
    assert sorted(core.kinds) == ["16bit", "16bit", "f32", "f32"]  # once, by the two best instruction sets


def test_little_memory_means_smaller_sets(core: CountedCore, file: RoofFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "available_memory", lambda: 40 * MIB)
    probe(1, working_sets=(8 * MIB, 64 * MIB, 512 * MIB), file=file)
    assert core.sizes == [8 * MIB, 20 * MIB]


def test_a_curve_is_measured_anew_within_its_budget(core: CountedCore, file: RoofFile) -> None:
    for _ in range(2):
        core.sizes.clear()
        core.seconds = 0.0
        spec = probe(2, working_sets=(4 * MIB, 2 * MIB), budget_s=1.0, file=file)
        assert core.sizes == [2 * MIB, 4 * MIB]
        assert core.seconds == pytest.approx(1.0)
    assert [size for size, _ in spec.read_bandwidth] == [2 * MIB, 4 * MIB]


def test_the_key_names_what_changes_a_roof() -> None:
    keys = {machine_key(2, "avx2"), machine_key(2, "scalar"), machine_key(1, "avx2")}
    assert len(keys) == 3


# --- the real core ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("num_bytes", [1, 1000, 65_536, 3 * MIB + 7])
def test_reading_gives_a_rate(num_threads: int, num_bytes: int) -> None:
    for isa in probe_isas():
        rate = probe_read(isa, num_threads, num_bytes, 4096, 0.001)
        assert 1e6 < rate < 1e14
        assert math.isfinite(rate)


def test_arithmetic_gives_a_rate_on_every_isa() -> None:
    for isa in probe_isas():
        for kind in ("f32", "16bit"):
            assert 1e6 < probe_flops(isa, 1, kind, 0.001) < 1e15


def test_an_isa_this_machine_lacks_is_refused(file: RoofFile) -> None:
    with pytest.raises(ConfigError, match="no 'avx9'"):
        roofs_of_model(lambda _: 1.0, MIB, 1, "avx9", file=file)
    with pytest.raises(ValueError, match="kind"):
        probe_flops("scalar", 1, "f64", 0.001)


def test_a_brief_probe_of_this_machine(file: RoofFile) -> None:
    spec = probe(1, working_sets=(MIB, 4 * MIB), budget_s=0.2, file=file)
    rates = [rate for _, rate in spec.read_bandwidth]
    assert rates == sorted(rates, reverse=True)
    assert (spec.num_threads, spec.isa) == (1, probe_isas()[-1])
    assert spec.peak_flops >= spec.flops_for("f32") > 0
    assert spec.memory_bytes
    assert spec.memory_bytes > 2**28
    assert RoofFile(file.path, file.now).load(machine_key(1, probe_isas()[-1])).envelope() == spec.read_bandwidth


# --- the command ------------------------------------------------------------------------------------------------------


SPEC = HardwareSpec("Box", ((2**20, 2e11), (2**40, 5e10)), {"f32": 1e11, "16bit": 2e11}, 2**34, "avx2", 2)


def run_command(monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str]) -> str:
    monkeypatch.setattr(probe_command, "probe", lambda num_threads, isa: SPEC)
    result = CliRunner().invoke(probe_command.command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_json_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    record = json.loads(run_command(monkeypatch, ["--json", "--threads", "1"]))
    assert (record["hardware"], record["isa"], record["threads"]) == ("Box", "avx2", 1)
    assert record["threads_reason"].startswith("1 thread")
    assert record["flop_s"] == {"f32": 1e11, "16bit": 2e11}
    assert [(p["working_set_bytes"], p["byte_s"]) for p in record["read_bandwidth"]] == [(2**20, 2e11), (2**40, 5e10)]
    assert record["read_bandwidth"][-1]["level"] == "memory"
    assert record["seconds"] >= 0


def test_the_table_is_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    text = run_command(monkeypatch, [])
    for piece in ("Box, avx2, 16.0 GiB", "thread", "200 GB/s", "50.0 GB/s", "200 GFLOP/s", "ridge point 4.0"):
        assert piece in text
