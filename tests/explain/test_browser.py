"""The page in a browser: no fault that axe-core finds serious, in both themes; nothing wider than a phone; sliders.

Needs Chromium and axe-core: see tests.axe.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.axe import axe_script, needs_browser
from tests.cli.command_line import invoke
from tests.server.browser import CHROMIUM

from twostroke.explain.page import page_of
from twostroke.explain.planned import planned_story
from twostroke.explain.story import Story
from twostroke.roofline.planned_model import find_planned
from twostroke.roofline.planner import Scenario, again, make_plan
from twostroke.roofline.target import find_target

THEMES = {"light": [], "dark": ["--blink-settings=preferredColorScheme=0"]}

pytestmark = [pytest.mark.large, needs_browser]


def run_in(page: str, script: str, folder: Path, *flags: str) -> Any:
    """What `script`, the body of an async function, returns in the page."""
    path = folder / "page.html"
    report = f"(async () => {{ {script} }})().then(found => {{ document.title = 'FOUND' + JSON.stringify(found); }})"
    path.write_text(page.replace("</body>", f"<script>{report}</script></body>"), "utf-8")
    command = [
        str(CHROMIUM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
    ]
    done = subprocess.run(
        [*command, *flags, "--virtual-time-budget=30000", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    found = re.search(r"<title>FOUND(.*?)</title>", done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-500:]
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


@pytest.fixture(scope="module")
def real(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "page.html"
    result = invoke("explain", str(smollm2_path), "The king and the queen", "--max-tokens", "24", "-o", str(path))
    assert result.exit_code == 0, result.exception
    return path.read_text("utf-8")


@pytest.fixture(scope="module")
def big() -> Story:
    return planned_story(make_plan(find_planned("llama-3.1-70b"), find_target("H100 SXM"), Scenario(512, 64)))


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("kind", ["run", "plan"])
def test_axe_finds_nothing_serious(kind: str, theme: str, real: str, big: Story, tmp_path: Path) -> None:
    page = real if kind == "run" else page_of(big)
    script = f"{axe_script()}; document.querySelectorAll('details').forEach(each => each.open = true);"
    script += "const found = await axe.run(document); return found.violations.map(each => [each.id, each.impact,"
    script += "each.nodes[0].html])"
    found = run_in(page, script, tmp_path, "--window-size=1200,900", *THEMES[theme])
    assert [each for each in found if each[1] in ("serious", "critical")] == []


def test_axe_sees_a_fault(real: str, tmp_path: Path) -> None:
    page = real.replace("--soft: #515c6b", "--soft: #c8ccd0")
    script = f"{axe_script()}; return (await axe.run(document)).violations.map(each => each.id)"
    assert "color-contrast" in run_in(page, script, tmp_path)


def test_nothing_is_wider_than_a_phone(real: str, tmp_path: Path) -> None:
    """A window of the least width, 500; the page in a frame of 400 within it."""
    (tmp_path / "inner.html").write_text(real, "utf-8")
    frame = '<iframe width="400" height="900" src="inner.html"></iframe>'
    outer = f"<html><head><title></title></head><body>{frame}</body></html>"
    script = "await new Promise(done => window.addEventListener('load', done)); const root ="
    script += (
        "document.querySelector('iframe').contentDocument.documentElement; return [root.clientWidth, root.scrollWidth]"
    )
    client, scroll = run_in(outer, script, tmp_path, "--allow-file-access-from-files")
    assert scroll == client <= 400


def test_sliders_move_the_figures(big: Story, tmp_path: Path) -> None:
    script = "const set = (id, value) => { const each = document.getElementById(id); each.value = value;"
    script += "each.dispatchEvent(new Event('input')); }; set('batch', 64); set('width', 1);"
    script += "const text = id => document.getElementById(id).textContent;"
    script += "return [text('tpot'), text('batch-out'), text('width-out'), text('fits'), text('needs')]"
    tpot, batch, width, fits, needs = run_in(page_of(big), script, tmp_path)
    plan = make_plan(find_planned("llama-3.1-70b", "4bpw"), find_target("H100 SXM"), Scenario(512, 1, batch=64))
    assert (batch, width) == ("64", "4 bits")
    assert tpot.startswith(f"{1e3 * plan.tpot_s:.3g} ms")
    assert fits.startswith("yes" if plan.memory.fits else "no")
    assert needs.endswith(f"{plan.memory.total_bytes / 2**30:.1f} GiB")
    assert plan.tpot_s < again(plan, weights="bf16").tpot_s
