"""`plan` and `fit`: what they print, their JSON, sweeps, and what they refuse."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from tests.axe import check_file, needs_browser

from twostroke.cli.main import main

PLAN = ("plan", "llama-3.1-8b", "--hardware", "rtx 4090", "--weights", "q4_k_m")


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def test_a_plan_says_what_it_takes_how_fast_it_is_and_what_limits() -> None:
    text = run(*PLAN).stdout
    for part in ("4.58 GiB", "128 KiB a token", "fits in 23.5 GiB", "memory-bound", "compute-bound", "ridge 164"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 120


def test_json_is_one_plan_or_the_points_of_a_sweep() -> None:
    one = json.loads(run(*PLAN, "--json").stdout)
    assert (one["model"], one["hardware"], one["batch"], one["context"]) == ("llama-3.1-8b", "RTX 4090", 1, 768)
    points = json.loads(run(*PLAN, "--batch", "1..8", "--context", "1024,4096", "--json").stdout)["points"]
    assert [(each["batch"], each["context"]) for each in points] == [
        (batch, context) for context in (1024, 4096) for batch in (1, 2, 4, 8)
    ]
    assert points[0]["decode"]["total_tok_s"] < points[3]["decode"]["total_tok_s"]


def test_a_sweep_over_hardware_and_weights_is_a_table() -> None:
    text = run("plan", "qwen3-4b", "--hardware", "rtx 3060,m4 max 40c", "--weights", "bf16,q4_k_m").stdout
    assert len(re.findall(r"^(RTX 3060|Apple M4 Max)", text, re.MULTILINE)) == 4


@pytest.mark.parametrize(
    ("args", "code", "part"),
    [
        (("plan", "lama-3.1-8b", "--hardware", "h100"), 1, "llama-3.1-8b"),
        (("plan", "llama-3.1-8b", "--hardware", "rtx 4091"), 1, "RTX 4090"),
        (("plan", "llama-3.1-8b", "--hardware", "h100", "--batch", "0"), 2, "--batch"),
        (("plan", "llama-3.1-8b", "--hardware", "h100", "--batch", "1..x"), 2, "--batch"),
        (("plan", "llama-3.1-8b", "--hardware", "h100", "--speculate", "4"), 2, "--speculate"),
        (("plan", "llama-3.1-8b", "--hardware", "h100", "--kv", "q9"), 1, "q8_0"),
        (("plan", "llama-3.1-8b", "--hardware", "h100", "--check"), 1, "--hardware this"),
        (("plan", "--hardware", "h100"), 2, "MODEL"),
        (("plan", "llama-3-8b", "--hardware", "h100", "--context", "9000"), 1, "context of 8192"),
        (("plan", "--claim", "fast"), 1, "a claim reads"),
        (("fit", "--hardware", "rtx 4091"), 1, "RTX 4090"),
    ],
)
def test_what_is_refused_says_why(args: tuple[str, ...], code: int, part: str) -> None:
    result = run(*args)
    assert (result.exit_code, len(result.stderr.splitlines())) == (code, 1)
    assert part in result.stderr


def test_a_claim_is_judged() -> None:
    result = run("plan", "--claim", "llama-2-7b at 45 tok/s on RTX 3060 in fp16")
    assert result.stdout.startswith("impossible: llama-2-7b")
    fields = json.loads(run("plan", "--claim", "llama-2-7b at 45 tok/s on RTX 3060 in fp16", "--json").stdout)
    assert fields["verdict"] == "impossible" and fields["limit_tok_s"] < 45


def test_own_hardware_and_memory() -> None:
    own = json.loads(run("plan", "qwen3-4b", "--bandwidth", "100", "--memory", "8", "--json").stdout)
    assert (own["hardware"], own["prefill"], own["memory"]["capacity_bytes"]) == ("custom hardware", None, 8 << 30)
    more = json.loads(run(*PLAN, "--memory", "4", "--json").stdout)
    assert more["memory"]["fits"] is False


@pytest.mark.large
@needs_browser
def test_axe_finds_nothing_serious(tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    assert run(*PLAN, "--html", str(path)).exit_code == 0
    check_file(path.read_text("utf-8"), tmp_path)


def test_the_page_needs_nothing_else_and_has_its_charts(tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    assert run(*PLAN, "--html", str(path)).exit_code == 0
    text = path.read_text("utf-8")
    assert not re.search(r"https?://(?!www\.nvidia)|<script|<link|url\(", text.partition("<pre")[0])
    assert "prefers-color-scheme: dark" in text
    charts = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(charts) == 3
    for chart in charts:
        root = ElementTree.fromstring(chart)
        assert root.get("aria-label")
        for mark in root.iter("circle"):
            assert 0 <= float(mark.get("cx", "nan")) <= 640 and 0 <= float(mark.get("cy", "nan")) <= 360


def test_fit_lists_models_best_first() -> None:
    found = json.loads(run("fit", "--hardware", "raspberry pi 5", "--memory", "2", "--json").stdout)["models"]
    qualities = [each["quality"] for each in found]
    assert qualities == sorted(qualities, reverse=True)
    assert all(each["memory"]["fits"] and each["headroom_bytes"] >= 0 for each in found)
    assert {each["memory"]["capacity_bytes"] for each in found} == {2 << 30}


def test_a_plan_imports_nothing_that_only_runs_need() -> None:
    code = (
        "import sys; from twostroke.cli.main import main\n"
        "try: main(['plan', 'llama-3.1-8b', '--hardware', 'rtx 4090', '--json'])\n"
        "except SystemExit: pass\n"
        "heavy = ('jinja2', 'rich', 'huggingface_hub', 'pydantic', 'starlette', 'tokenizers')\n"
        "heavy += ('numpy', 'twostroke.native')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_plan_takes_under_half_a_second_of_the_processor() -> None:
    code = "from twostroke.cli.main import main; main(['plan', 'llama-3.1-8b', '--hardware', 'rtx 4090'])"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0  # twice, for slow machines
