"""Roofs on disk: joined upward, dated, expired, and never a reason to fail."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from twostroke.roofline.roofs import Measured, RoofFile, Roofs, find_read

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)


def reads(points: dict[int, float], at: datetime = NOW) -> Roofs:
    return Roofs({size: Measured(rate, at) for size, rate in points.items()})


def flops(rates: dict[str, float], at: datetime = NOW) -> Roofs:
    return Roofs({}, {kind: Measured(rate, at) for kind, rate in rates.items()})


@pytest.fixture
def file(tmp_path: Path) -> RoofFile:
    return RoofFile(tmp_path / "new" / "roofs.json", lambda: NOW)


def test_what_is_kept_comes_back(file: RoofFile) -> None:
    roofs = Roofs({1000: Measured(5.0, NOW), 2000: Measured(4.5, NOW)}, {"f32": Measured(9.0, NOW)})
    assert file.load("box") == Roofs()
    assert file.raise_to("box", roofs) == Roofs().measured_again(roofs) == file.load("box")
    assert file.load("another box") == Roofs()
    assert [path.name for path in file.path.parent.iterdir()] == ["roofs.json"]


def test_a_roof_is_raised_and_never_lowered(file: RoofFile) -> None:
    earlier = NOW - timedelta(days=2)
    file.raise_to("box", reads({1000: 5.0}, earlier).raised_by(flops({"f32": 9.0}, earlier)))
    lower = file.raise_to("box", reads({1000: 4.0}).raised_by(flops({"f32": 8.0})))
    assert (lower.reads[1000], lower.flops["f32"]) == (Measured(5.0, earlier), Measured(9.0, earlier))
    higher = file.raise_to("box", reads({1000: 6.0}).raised_by(flops({"f32": 10.0, "16bit": 20.0})))
    assert (higher.reads[1000], higher.flops["f32"].rate) == (Measured(6.0, NOW), 10.0)
    assert higher == file.load("box")


def test_reading_is_as_it_was_last_and_its_best_and_slowest_are_kept(file: RoofFile) -> None:
    for rate in (60.0, 30.0, 66.0, 40.0):
        file.raise_to("box", reads({1000: 90.0, 2000: rate}))
    roofs = file.raise_to("box", flops({"f32": 9.0}))  # without reading: nothing changes
    assert roofs == file.load("box")
    assert roofs.envelope() == ((1000, 90.0), (2000, 40.0))
    assert roofs.memory_span() == (30 / 40, 66 / 40)
    assert [kept[2000].rate for kept in (roofs.reads, roofs.latest, roofs.slowest)] == [66.0, 40.0, 30.0]
    assert Roofs().memory_span() == reads({1000: 5.0}).memory_span() == (1.0, 1.0)


def test_a_file_of_an_earlier_version_is_read(file: RoofFile) -> None:
    record = {"bytes": 1000, "rate": 5.0, "at": NOW.isoformat()}
    file.path.parent.mkdir()
    file.path.write_text(json.dumps({"box": {"reads": [record], "flops": []}}), "utf-8")
    assert file.load("box").envelope() == ((1000, 5.0),)


def test_nearly_equal_working_sets_are_one(file: RoofFile) -> None:
    file.raise_to("box", reads({1000: 5.0}))
    assert set(file.raise_to("box", reads({1040: 4.0})).reads) == {1000}
    assert set(file.raise_to("box", reads({1030: 6.0})).reads) == {1030}
    assert set(file.raise_to("box", reads({2000: 3.0})).reads) == {1030, 2000}
    known = file.load("box").reads
    assert [find_read(known, size) for size in (1050, 1500, 2090)] == [1030, None, 2000]


def test_other_machines_keep_their_entries(file: RoofFile) -> None:
    file.raise_to("a", reads({1000: 5.0}))
    file.raise_to("b", reads({1000: 7.0}))
    assert (file.load("a").reads[1000].rate, file.load("b").reads[1000].rate) == (5.0, 7.0)


@pytest.mark.parametrize(("days", "kept"), [(0, True), (29, True), (31, False), (-5, False)])
def test_old_measurements_are_ignored(file: RoofFile, days: int, kept: bool) -> None:
    at = NOW - timedelta(days=days)
    file.raise_to("box", reads({1000: 5.0}, at))
    assert (1000 in file.load("box").reads) is kept
    assert file.raise_to("box", reads({1000: 4.0})).reads[1000].rate == (5.0 if kept else 4.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "\xff\x00",
        "[" * 100_000,
        '{"box": 3}',
        '{"box": {"reads": [{"bytes": 1000}], "flops": []}}',
        '{"box": {"reads": [{"bytes": 1000, "rate": 5.0, "at": "yesterday"}], "flops": []}}',
        '{"box": {"reads": [{"bytes": 1000, "rate": 5.0, "at": "2030-05-01"}], "flops": []}}',
        '{"box": {"reads": [{"bytes": 1000, "rate": NaN, "at": "2030-05-01T00:00:00+00:00"}], "flops": []}}',
        '{"box": {"reads": [{"bytes": 1e999, "rate": 5.0, "at": "2030-05-01T00:00:00+00:00"}], "flops": []}}',
        '{"box": {"reads": [{"bytes": 1000, "rate": -5.0, "at": "2030-05-01T00:00:00+00:00"}], "flops": []}}',
    ],
)
def test_a_damaged_file_is_an_empty_one_and_is_replaced(file: RoofFile, text: str) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(text.encode("latin-1"))
    assert file.load("box") == Roofs()
    assert file.raise_to("box", reads({1000: 5.0})) == Roofs().measured_again(reads({1000: 5.0})) == file.load("box")


def test_a_record_with_a_wrong_size_is_dropped(file: RoofFile) -> None:
    record = {"rate": 5.0, "at": NOW.isoformat()}
    file.path.parent.mkdir()
    entry = {"reads": [{"bytes": 0, **record}, {"bytes": 10, **record}], "flops": []}
    file.path.write_text(json.dumps({"box": entry}), "utf-8")
    assert list(file.load("box").reads) == [10]


def test_where_nothing_can_be_written_the_measurement_still_counts(tmp_path: Path) -> None:
    (tmp_path / "in the way").write_text("a file", "utf-8")
    file = RoofFile(tmp_path / "in the way" / "roofs.json", lambda: NOW)
    assert file.raise_to("box", reads({1000: 5.0})) == Roofs().measured_again(reads({1000: 5.0}))
    assert file.load("box") == Roofs()


def test_the_file_is_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOSTROKE_CACHE", str(tmp_path))
    assert RoofFile().path == tmp_path / "roofs.json"


def test_the_envelope_never_rises_with_the_set() -> None:
    roofs = reads({1: 9.0, 2: 4.0, 3: 6.0, 4: 5.0})
    assert roofs.envelope() == ((1, 9.0), (2, 6.0), (3, 6.0), (4, 5.0))
    assert Roofs().envelope() == ()


def test_the_date_is_the_oldest() -> None:
    earlier = NOW - timedelta(days=3)
    assert reads({1: 1.0}).raised_by(flops({"f32": 1.0}, earlier)).oldest() == earlier
    assert Roofs().oldest() is None
