"""The page and its charts: what is drawn is what was measured, and nothing outside the file is needed."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.axe import check_file, needs_browser
from tests.bench.conftest import Run
from tests.bench.streams import steady

from twostroke.bench.charts import Axis, Series, histogram, line_chart, num_left_out, timeline
from twostroke.bench.page import page_of
from twostroke.bench.record import Record

PLANNED = {"plan": "llama-3.1-8b", "hardware": "rtx 4090"}
QUICK = {"first": 0.02, "gap": 0.002, "chunks": 10}


class Balance(HTMLParser):
    """Open elements; any that are left or closed out of turn are a fault."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_of_a_sweep(run: Run) -> None:
    page = page_of(run([QUICK, QUICK, {"status": 429}], concurrency="1,2", slo="ttft=1", api_key="sesame", **PLANNED))
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert page.count("<svg") == 2 + 2 * 4
    assert "1 &times; HTTP 429" in page or "2 &times; HTTP 429" in page
    assert not re.findall(r"(?:src|href)\s*=|url\(|@import|<script", page)
    assert page.count("Predicted for ") == 2 and page.count('"line three"') == 2
    assert "sesame" not in page
    assert len(page) < 200_000


@pytest.mark.large
@needs_browser
def test_axe_finds_nothing_serious(run: Run, tmp_path: Path) -> None:
    test = run([QUICK, QUICK, {"status": 429}], concurrency="1,2", requests=9, slo="ttft=1", **PLANNED)
    check_file(page_of(test), tmp_path)


def test_a_page_of_nothing_but_errors(run: Run) -> None:
    page = page_of(run({"status": 500}))
    assert "4 &times; HTTP 500" in page
    assert page.count("<svg") == 1


def test_what_a_server_says_is_text(run: Run) -> None:
    assert "<img>" not in page_of(run(QUICK, model="<img>"))


def test_an_axis() -> None:
    assert Axis(100, 0, 50).at(50) == "25.0"
    assert Axis(107, 0, 1).ticks() == [0, 50, 100]
    assert Axis(0.9, 0, 1).ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert Axis(2.1, 0, 1, is_count=True).ticks() == [0, 1, 2]


def test_a_line_goes_through_its_points() -> None:
    svg = line_chart("t", [Series("p50", "one", ((0, 10), (100, 20)), ("a", "b"))], "x", "y")
    (points,) = re.findall(r'points="([^"]+)"', svg)
    (left, upper), (right, lower) = (map(float, point.split(",")) for point in points.split())
    assert left == 68 and right == pytest.approx(68 + (480 - 14 - 68) / 1.08, abs=0.1)
    bottom = 250 - 44
    assert (bottom - lower) / (bottom - upper) == pytest.approx(2, rel=0.01)


def test_a_histogram_counts_every_value_but_the_farthest() -> None:
    counts = [
        int(count)
        for count in re.findall(r"<title>(\d+) from", histogram("t", [1.0] * 50 + [2.0] * 150 + [900.0], "x"))
    ]
    assert sorted(counts) == [50, 150]


def test_a_timeline_has_a_row_a_request_and_says_what_it_leaves_out() -> None:
    failed = Record(0, 0, 0, sent=100.0, ended=100.5, error="timeout")
    records = [steady(3), failed, *(steady(3) for _ in range(130))]
    svg = timeline("t", records, 100.0)
    assert (svg.count('class="wait"'), svg.count('class="stream"'), svg.count('class="failed"')) == (119, 119, 1)
    assert num_left_out(records) == 12
