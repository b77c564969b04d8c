"""`twostroke bench --url`: what it prints and writes, and what ends it."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command_line import invoke, json_of, output_of

from twostroke.errors import ConfigError, EndpointError

QUICK = {"first": 0.02, "gap": 0.002, "chunks": 10}
MAIN = "from twostroke.cli.main import main; main()"
PLANNED = ("--plan", "llama-3.1-8b", "--hardware", "rtx 4090")
ARGUMENTS = ("--requests", "4", "--warmup", "1", "--output-tokens", "10")


def extra(script: object) -> str:
    return json.dumps({"script": script})


def test_a_table_that_states_what_it_means(mock_url: str) -> None:
    scripts = [QUICK, {**QUICK, "reasoning": 5}, {"status": 429}, QUICK]
    text = output_of(
        "bench", "--url", mock_url, *ARGUMENTS, "--warmup", "0", "--extra", extra(scripts), "--slo", "ttft=1"
    )
    for part in (
        "concurrency 1: 3 of 4 requests",
        "output tokens/s",
        "  TTFT  ",
        "  first content ",
        "  TPOT  ",
        "  inter-token ",
        "goodput",
        "75% of those measured",
        "1 x HTTP 429: as told",
        "prompts counted by the server's usage",
        "(last delta - first delta) / (tokens in the stream - 1)",
    ):
        assert part in text
    assert max(map(len, text.splitlines())) <= 110


def test_a_sweep_at_a_glance(mock_url: str) -> None:
    text = output_of("bench", "--url", mock_url, *ARGUMENTS, "--concurrency", "1,2", "--extra", extra(QUICK), *PLANNED)
    assert text.count("  predicted      TPOT ") == 2
    glance = text[text.index("load  ") :].splitlines()
    assert [line.split("  ")[0] for line in glance[1:3]] == ["concurrency 1", "concurrency 2"]


def test_one_json_object_and_a_row_a_request(mock_url: str, tmp_path: Path) -> None:
    rows_path = tmp_path / "rows.csv"
    found = json_of(
        *("bench", "--url", mock_url, *ARGUMENTS, "--concurrency", "1,2", "--extra", extra(QUICK)),
        *("--csv", str(rows_path), "--seed", "7", "--api-key", "sesame"),
    )
    assert (found["model"], found["seed"], found["interrupted"]) == ("mock", 7, False)
    assert "tpot" in found["definitions"]
    stage: dict[str, Any] = found["stages"][1]
    assert stage["load"]["concurrency"] == 2
    assert stage["requests"] == {"measured": 4, "succeeded": 4, "cancelled": 0, "errors": {}}
    assert stage["output_tokens"]["sum"] == 40
    assert set(stage["generator"]) == {"read_lag_s", "send_lag_p99_s", "cpu_share"}
    assert stage["ttft_s"]["count"] == 4 and 0.019 <= stage["ttft_s"]["p50"] < 0.5
    rows = list(csv.DictReader(rows_path.read_text("utf-8").splitlines()))
    assert [row["warmup"] for row in rows] == ["1", "0", "0", "0", "0"] * 2
    assert all(0.019 <= float(row["ttft_s"]) <= float(row["e2e_s"]) for row in rows)
    assert "sesame" not in json.dumps(found) + rows_path.read_text("utf-8")


def test_no_success_is_a_failure(mock_url: str) -> None:
    result = invoke("bench", "--url", mock_url, *ARGUMENTS, "--warmup", "0", "--extra", extra({"status": 500}))
    assert result.exit_code == 1
    assert "4 x HTTP 500: as told" in result.stdout


def test_errors_before_the_run(mock_url: str, tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match="cannot connect"):
        output_of("bench", "--url", "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="No such file"):
        output_of("bench", "--url", mock_url, "--csv", str(tmp_path / "none" / "x.csv"))
    assert invoke("bench").exit_code == 2


@pytest.mark.parametrize(("option", "needed"), [(("--arrivals", "constant"), "rate"), (("--hardware", "h100"), "plan")])
def test_an_option_that_would_be_ignored_is_refused(option: tuple[str, str], needed: str) -> None:
    result = invoke("bench", "--url", "http://127.0.0.1:1", *option)
    assert result.exit_code == 2 and f"{option[0]} needs --{needed}" in result.stderr


def test_a_run_that_fails_names_the_address_and_leaves_no_file(tmp_path: Path) -> None:
    kept, new = tmp_path / "kept.csv", tmp_path / "new.html"
    kept.write_text("as before")
    with pytest.raises(EndpointError, match=r"^http://127\.0\.0\.1:1/v1/chat/completions: .*: Connection refused$"):
        output_of("bench", "--url", "http://127.0.0.1:1", "--csv", str(kept), "--html", str(new))
    assert kept.read_text() == "as before" and not new.exists()


def test_a_file_that_fails_after_the_run_does_not_cost_its_figures(mock_url: str) -> None:
    result = invoke("bench", "--url", mock_url, *ARGUMENTS, "--extra", extra(QUICK), "--json", "--csv", "/dev/full")
    assert json.loads(result.stdout)["stages"][0]["requests"]["succeeded"] == 4
    assert isinstance(result.exception, ConfigError) and "/dev/full cannot be written" in str(result.exception)


def test_one_file_cannot_be_two(tmp_path: Path) -> None:
    both = str(tmp_path / "x")
    with pytest.raises(ConfigError, match="both the page and the rows"):
        output_of("bench", "--url", "http://127.0.0.1:1", "--html", both, "--csv", both)


def stopped(mock_url: str, script: dict[str, Any], *options: str) -> str:
    """What a run prints that gets Ctrl-C a while after its first line of progress."""
    command = [sys.executable, "-c", MAIN, "bench", "--url", mock_url, "--seconds", "60", "--extra", extra(script)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None and run.stdout is not None
        while "deltas/s" not in (line := run.stderr.readline()):
            assert line
        time.sleep(0.7)
        run.send_signal(signal.SIGINT)
        text = run.stdout.read()
        assert run.wait(60) == 130
    return text


def test_ctrl_c_prints_what_was_gathered(mock_url: str) -> None:
    text = stopped(mock_url, {**QUICK, "first": 0.1}, "--concurrency", "2,4")
    assert "concurrency 2:" in text and "concurrency 4:" not in text
    assert "TTFT" in text and "under way and not counted" in text


def test_ctrl_c_in_the_warm_up_says_so(mock_url: str) -> None:
    text = stopped(mock_url, {**QUICK, "first": 30.0})
    assert "nothing was measured" in text and "\n  generator " not in text
