"""A model that does not stay in memory is noticed, and can be kept there: CPU-07."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command_line import invoke

from twostroke import LLM
from twostroke.errors import ConfigError
from twostroke.llm import generation
from twostroke.llm.locking import check_lockable
from twostroke.llm.paging import Paging, PagingWatch


def watched(counts: list[int]) -> Paging:
    """`counts`: page reads of the process when each token has come."""
    read = 0
    watch = PagingWatch(lambda: read)
    for read in counts:  # noqa: B007 - the watch reads it
        watch.token()
    return watch.found


def test_page_reads_that_go_on_are_paging() -> None:
    found = watched([100, 140, 180, 180, 230, 260])
    assert found == Paging(steps=5, paged_steps=4, page_reads=160)
    assert found.is_paging


def test_a_long_answer_is_looked_at_now_and_then() -> None:
    found = watched(list(range(0, 100 * 7, 7)))
    assert found.is_paging and 80 <= found.steps == found.paged_steps < 100 and found.page_reads == 7 * found.steps


@pytest.mark.parametrize(
    "counts",
    [
        [5000, 5000, 5000, 5000, 5000, 5000],  # read while loading
        [10, 500, 500, 500, 500, 500],  # a library's pages, once
        [10, 11, 12],  # too few steps to tell
        [7] * 20 + [8, 9, 10] + [10] * 20,
        [],
    ],
)
def test_page_reads_that_end_are_not(counts: list[int]) -> None:
    assert not watched(counts).is_paging


def test_a_run_that_pages_says_so_in_one_line(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("run", str(tiny_path), "tea", "--max-tokens", "9", "--ignore-eos", "--no-probe", "--no-summary")
    assert "paging" not in invoke(*arguments, text="").stderr
    reads = iter(range(0, 1000, 7))
    monkeypatch.setattr(generation, "PagingWatch", lambda: PagingWatch(lambda: next(reads)))
    for more in ((), ("--json",)):
        result = invoke(*arguments, *more, text="")
        (line,) = [line for line in result.stderr.splitlines() if line.startswith("paging")]
        assert "8 of 8 decode steps read 56 pages from disk" in line and "--mlock" in line


def test_locking_is_done_or_refused_with_the_limit(tiny_path: Path) -> None:
    """In a process of its own, since locks stay: whatever this machine's limit is."""
    code = (
        "import sys; from twostroke import LLM; from twostroke.errors import ConfigError\n"
        "from twostroke.llm.locking import locked_bytes\n"
        "try:\n    llm = LLM(sys.argv[1], threads=1, mlock=True)\n"
        "except ConfigError as error:\n    print('refused', error)\n"
        "else:\n    print('locked', locked_bytes() - llm.weight_bytes > 0, bool(llm.score('a tea')))"
    )
    command = [sys.executable, "-c", code, str(tiny_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.startswith(("locked True", "refused mlock: ")), shown
    assert "refused" not in shown or "limit is" in shown


def test_what_the_limit_forbids_is_refused_before_loading(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = tmp_path / "proc/self/status"
    status.parent.mkdir(parents=True)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1000, 50 * 1024))
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: raised.append(limits))
    status.write_text("VmSize:\t      40 kB\nCapEff:\t0000000000000000\n")
    check_lockable(10 * 1024, root=tmp_path)
    assert raised == [(50 * 1024, 50 * 1024)]  # as far as it goes
    with pytest.raises(ConfigError, match=r"mlock: 51,201 bytes would be locked, but the limit is 51,200 bytes"):
        check_lockable(10 * 1024 + 1, root=tmp_path)
    status.write_text("VmSize:\t      40 kB\nCapEff:\t0000000000004000\n")
    check_lockable(1 << 40, root=tmp_path)  # the capability knows no limit


def test_memory_is_told_apart(tiny_path: Path) -> None:
    arguments = ("run", str(tiny_path), "tea", "--max-tokens", "2", "--no-probe", "-v")
    (line,) = [line for line in invoke(*arguments, text="").stderr.splitlines() if line.startswith("resident")]
    assert "private" in line and "of files" in line


def test_weights_are_private_memory_and_the_files_pages_are_given_back(smollm2_path: Path) -> None:
    """The model is in memory once: packed, not mapped."""
    code = (
        "import sys; from twostroke import LLM; from twostroke.roofline.memory import resident_bytes, peak_rss_bytes\n"
        "before = resident_bytes(); llm = LLM(sys.argv[1], threads=1, context=64); after = resident_bytes()\n"
        "print(after[0] - before[0] - llm.weight_bytes, after[1] - before[1],"
        " peak_rss_bytes() - sum(before) - llm.weight_bytes)"
    )
    command = [sys.executable, "-c", code, str(smollm2_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    private, of_files, peak = map(int, shown.split())
    assert private > 0
    assert of_files < 40 * 2**20  # of 94 MiB; libraries among them
    assert peak < 85 * 2**20  # also while loading: what a tokenizer takes, and a tensor's pages at a time


def test_the_option_is_the_fields(tiny_path: Path) -> None:
    assert not LLM(tiny_path, threads=1).config.mlock
    assert "--mlock" in invoke("run", "--help").stdout
