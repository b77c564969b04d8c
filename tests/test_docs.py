"""The generated pages under docs/ are what their generators write now."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_api_page_is_current(tmp_path: Path) -> None:
    fresh = tmp_path / "api.md"
    subprocess.run([sys.executable, str(ROOT / "docs/generate_api.py"), str(fresh)], check=True)
    assert (ROOT / "docs/api.md").read_text(encoding="utf-8") == fresh.read_text(encoding="utf-8"), "run `make docs`"


@pytest.mark.skipif(not (ROOT / "src/twostroke/cli/main.py").exists(), reason="there is no command line yet")
def test_the_command_line_page_is_current(tmp_path: Path) -> None:
    fresh = tmp_path / "cli.md"
    subprocess.run([sys.executable, str(ROOT / "docs/generate_cli.py"), str(fresh)], check=True)
    page = ROOT / "docs/cli.md"
    assert page.exists(), "run `make docs`"
    assert page.read_text(encoding="utf-8") == fresh.read_text(encoding="utf-8"), "run `make docs`"
