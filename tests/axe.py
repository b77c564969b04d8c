"""Pages looked at in a browser by axe-core: no serious fault, nothing wider than the window, in any theme or width.

Needs Chromium and axe-core: the file axe.min.js that AXE_CORE names, or the package axe-core-python.
"""

import json
import os
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest
from tests.server.browser import CHROMIUM, Browser

WIDTHS = (1200, 390)
VIOLATIONS = """axe.run(document).then(found => JSON.stringify(found.violations
  .filter(each => ["serious", "critical"].includes(each.impact))
  .map(each => [each.id, each.nodes.map(node => node.html)])))"""

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


def axe_script() -> str:
    package = find_spec("axe_core_python")
    folder = Path(package.origin).parent if package is not None and package.origin else Path("/nowhere")
    path = Path(os.environ.get("AXE_CORE") or folder / "axe.min.js")
    if not path.exists():
        pytest.skip("there is no axe-core")
    return path.read_text("utf-8")


def check_page(browser: Browser) -> None:
    """The page that is open, as it is now."""
    browser.run(f"{axe_script()}; 0")
    root = "document.documentElement"
    for width, dark in product(WIDTHS, (False, True)):
        browser.look(width, 900, dark=dark)
        where = f"{'dark' if dark else 'light'}, {width} wide"
        assert json.loads(browser.run(VIOLATIONS)) == [], where
        assert browser.run(f"{root}.scrollWidth - {root}.clientWidth") == 0, where


def check_file(page: str, folder: Path) -> None:
    """A page that is one file."""
    path = folder / "page.html"
    path.write_text(page, "utf-8")
    with Browser(folder / "profile") as browser:
        browser.open(path.as_uri())
        check_page(browser)
        assert browser.faults == []
