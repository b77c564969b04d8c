"""The live page under axe-core, idle after an answer. Large, for axe-core is not among what tests install."""

from pathlib import Path

import pytest
from tests.axe import check_page, needs_browser
from tests.server.browser import Browser
from tests.server.running import RunningServer
from tests.server.test_page import ask, is_done


@pytest.mark.large
@needs_browser
def test_axe_finds_nothing_serious(server: RunningServer, tmp_path: Path) -> None:
    with Browser(tmp_path / "profile") as browser:
        browser.open(f"{server.url}/")
        browser.until("document.getElementById('state').textContent === 'idle'")
        check_page(browser)
        ask(browser, "the rain")
        is_done(browser)
        browser.until("document.querySelectorAll('.stroke.idle').length === 2")
        check_page(browser)
