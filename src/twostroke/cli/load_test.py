"""`bench --url`. Owns what a load test prints and writes, and in which order."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from twostroke.bench.config import LoadTestConfig
from twostroke.bench.load_test import LoadTest, load_test
from twostroke.bench.metrics import Figures
from twostroke.bench.report import csv_text, report_of
from twostroke.cli.load_progress import LoadProgress
from twostroke.cli.load_report import definition_lines, expected_lines, head_lines, stage_lines, sweep_lines
from twostroke.cli.output_file import check_writable, write_text
from twostroke.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.bench.expectation import Expectation

_INTERRUPTED = 130


def run_load_test(config: LoadTestConfig, html: Path | None, csv: Path | None, as_json: bool) -> None:
    """Runs it, prints a table or one JSON object, writes the files asked for. Exits with 1 where no request succeeded,
    with 130 after Ctrl-C. Raises what `load_test` raises, and ConfigError for a file that cannot be written."""
    for path in (html, csv):
        if path is not None:
            check_writable(path)
    if html is not None and csv is not None and html.resolve() == csv.resolve():
        raise ConfigError(f"{html} cannot be both the page and the rows")
    progress = LoadProgress()

    def on_stage(figures: Figures, expected: "Expectation | None") -> None:
        progress.clear()
        if not as_json:
            click.echo("\n".join([*stage_lines(figures), *expected_lines(expected), ""]))

    test = load_test(config, progress, on_stage)
    click.echo(json.dumps(report_of(test)) if as_json else "\n".join(_closing_lines(test)))
    if csv is not None:
        write_text(csv, csv_text(test))
    if html is not None:
        from twostroke.bench.page import page_of

        write_text(html, page_of(test))
    if test.was_stopped:
        sys.exit(_INTERRUPTED)
    if not any(stage.num_ok for stage in test.stages):
        sys.exit(1)


def _closing_lines(test: LoadTest) -> Iterator[str]:
    if sweep := list(sweep_lines(test)):
        yield from (*sweep, "")
    yield from head_lines(test)
    yield ""
    yield from definition_lines()
