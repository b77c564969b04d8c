"""The live page: what it is served with, what it is told of the engine, and that it works in a browser."""

import logging
import math
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.server.browser import CHROMIUM, Browser, wait_for
from tests.server.running import RunningServer, running

from twostroke import LLM
from twostroke.engine.ledger import StepRecord
from twostroke.kvcache.cache import KVCache
from twostroke.kvcache.chain import BlockChain
from twostroke.llm.config import SamplingParams
from twostroke.program.phase import Phase
from twostroke.server.activity import MAX_CELLS, Activity
from twostroke.server.auth import Keys
from twostroke.server.roof_watch import RoofWatch

STATIC = Path(__file__).parents[2] / "src/twostroke/server/static"
KEY = "a key to the server"
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


def activity(server: RunningServer, since: float = 0.0) -> dict[str, Any]:
    response = server.client.get("/activity", params={"since": since})
    assert response.status_code == 200, response.text
    return dict(response.json())


# --- what is served ---------------------------------------------------------------------------------------------------


class Addresses(HTMLParser):
    """What a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("src", "href") and value]
        assert not [name for name, _ in attrs if name == "style" or name.startswith("on")]


def test_the_page_and_its_parts(server: RunningServer) -> None:
    page = server.client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    seen = Addresses()
    seen.feed(page.text)
    parts = {f"/page/{path.name}" for path in STATIC.iterdir() if path.name != "index.html"}
    assert set(seen.found) <= parts and "/page/main.js" in seen.found
    for path in ["/", *parts]:
        response = server.client.get(path)
        policy = response.headers["content-security-policy"].split("; ")
        assert response.status_code == 200 and "default-src 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert not [rule for rule in policy if "unsafe" in rule or "*" in rule or "http" in rule]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert (
            "http://" not in response.text.replace("http://www.w3.org/2000/svg", "") and "https://" not in response.text
        )
    assert server.client.get("/page/page.css").headers["content-type"] == "text/css; charset=utf-8"
    assert server.client.get("/page/nothing.js").status_code == 404


def test_the_page_is_open_and_what_it_shows_is_not(tiny: LLM) -> None:
    with running(tiny, Keys([KEY])) as server:
        assert server.client.get("/").status_code == 200
        assert server.client.get("/page/main.js").status_code == 200
        assert server.client.get("/activity").status_code == 401
        assert server.client.get("/activity", headers={"authorization": f"Bearer {KEY}"}).status_code == 200


def test_looking_is_not_logged_and_counted_once_it_fails(server: RunningServer, caplog: Any) -> None:
    with caplog.at_level(logging.INFO, "twostroke.access"):
        activity(server)
        assert not caplog.records
        assert server.client.get("/activity?since=x").status_code == 400
        assert server.client.get("/activity?since=nan").status_code == 400
    assert [record.path for record in caplog.records] == ["/activity"] * 2


# --- what it says -----------------------------------------------------------------------------------------------------


def test_steps_answers_and_phases_are_the_ledgers(server: RunningServer) -> None:
    before = activity(server)
    server.complete("the rain in the sea", max_tokens=9, ignore_eos=True, cache_salt="steps")
    time.sleep(0.11)  # a look is kept for a tenth of a second
    after = activity(server, since=before["now"])
    ledger = [step for step in server.engine.ledger.recent if step.started >= before["now"]]
    rows = [[rows_of(step, phase) for phase in Phase] for step in ledger]
    assert [step[2:] for step in after["steps"]] == rows
    assert sum(prefill for prefill, _ in rows) > 1 and sum(decode for _, decode in rows) >= 8
    assert activity(server, since=after["now"])["steps"] == []
    answer = after["answers"][-1]
    assert (answer["completion_tokens"], answer["finish_reason"], answer["cached_tokens"]) == (9, "length", 0)
    assert answer["ttft_s"] > 0 and answer["tpot_s"] > 0 and before["now"] < answer["ended"] < after["now"]
    assert (after["running"], after["waiting"], after["requests"]) == (0, 0, [])
    decode = after["phases"]["decode"]
    assert decode["tok_s"] > 0 and decode["achieved_byte_s"] == server.metric(
        "achieved_bytes_per_second", phase="decode"
    )
    assert decode["roof_byte_s"] is None  # this server has not probed


def rows_of(step: StepRecord, phase: Phase) -> int:
    return step.phases[phase].rows if phase in step.phases else 0


def test_what_runs_is_seen_while_it_runs(tiny_path: Path) -> None:
    """An engine stepped by hand: two prompts that begin alike, one of them further than the other."""
    with LLM(tiny_path, threads=1, max_batch=2, context=256) as llm:
        engine = llm.running.engine
        shown = Activity(engine, RoofWatch())
        block = engine.cache.block_tokens
        prompt = list(range(5, 5 + 3 * block))
        params = SamplingParams(max_tokens=50, ignore_eos=True)
        engine.submit(llm.request(prompt, params))
        for _ in range(4):  # the prompt and its first token, then three more
            engine.step()
        engine.submit(llm.request([*prompt[: 2 * block], 9], params))
        engine.step()
        look = shown.snapshot(-math.inf)
        first, second = look["requests"]
        assert [first[name] for name in ("state", "computed_tokens", "completion_tokens")] == ["decode", 3 * block, 5]
        assert [second[name] for name in ("cached_tokens", "computed_tokens")] == [2 * block, 2 * block + 1]
        kv = look["kv"]
        assert [kv[name] for name in ("used", "shared", "kept")] == [3, 2, 0]
        assert kv["free"] == kv["num_blocks"] - 5 and sum(kv["cells"]["shared"]) == 2
        assert [step[2:] for step in look["steps"]] == [[3 * block, 0], *[[0, 1]] * 3, [1, 1]]


def test_an_engine_is_looked_at_a_few_times_a_second(tiny: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is asked: the cost of open pages is bounded."""
    looks = 0

    def usage(cache: KVCache) -> tuple[Any, Any]:
        nonlocal looks
        looks += 1
        return np.zeros(4, np.int32), np.zeros(4, np.int32)

    monkeypatch.setattr(KVCache, "usage", usage)
    shown = Activity(tiny.running.engine, RoofWatch())
    started = time.perf_counter()
    for _ in range(2000):
        shown.snapshot(math.inf)
    assert looks <= 1 + (time.perf_counter() - started) / 0.1


def test_blocks_by_who_has_them() -> None:
    cache = KVCache(4, (2 * MAX_CELLS + 3,), prefix_cache=True)
    chain = BlockChain(4, ("model", ""), all_prompt=False)
    chain.extend(np.arange(8, dtype=np.int32), 8)
    first, second, third = (cache.new_table(16) for _ in range(3))
    cache.grow(first, 12)
    cache.offer(first, chain.keys[:2])
    cache.attach(second, cache.match(chain.keys[:1]))
    cache.grow(third, 4)
    users, kept = cache.usage()
    assert users[:5].tolist() == [2, 1, 1, 1, 0] and kept[:5].tolist() == [1, 1, 0, 0, 0]
    cache.release(first)
    users, kept = cache.usage()
    assert users[:5].tolist() == [1, 0, 0, 1, 0] and kept[:5].tolist() == [1, 1, 0, 0, 0]


# --- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


def ask(browser: Browser, question: str) -> None:
    browser.run("document.getElementById('question').focus()")
    browser.write(question)
    browser.press("Enter")


def is_done(browser: Browser) -> None:
    browser.until(
        "!document.getElementById('send').disabled && !!document.querySelector('.message:last-child .account')"
    )


@needs_browser
def test_a_question_is_answered_and_seen(server: RunningServer, browser: Browser) -> None:
    browser.look(1200, 900)
    browser.requests.clear()
    browser.faults.clear()
    browser.open(f"{server.url}/")
    browser.until("document.getElementById('state').textContent === 'idle'")
    empty = browser.run("document.getElementById('timeline').toDataURL()")
    browser.run("document.getElementById('max-tokens').value = '40'")
    ask(browser, "<img src=x onerror=alert(1)> the rain")
    is_done(browser)
    messages = browser.run("[...document.querySelectorAll('.message > .text')].map((each) => each.textContent)")
    assert messages[0] == "<img src=x onerror=alert(1)> the rain"
    assert browser.run("document.querySelectorAll('.message img').length") == 0
    account = browser.run("document.querySelector('.message:last-child .account').textContent")
    assert "tokens in" in account and "TTFT" in account
    browser.until("document.querySelectorAll('#answers tr').length && !/none/.test(answers.textContent)")
    assert browser.until("/rows? in/.test(document.getElementById('last-step').textContent)")
    browser.until(f"document.getElementById('timeline').toDataURL() !== {empty!r}")
    moved = browser.run("document.getElementById('timeline').toDataURL()")
    browser.until(f"document.getElementById('timeline').toDataURL() !== {moved!r}")
    assert browser.run("document.querySelector('#decode .rate').textContent").split()[0] != "–"
    assert browser.faults == []
    assert not [url for url in browser.requests if not url.startswith(f"{server.url}/")]


@needs_browser
def test_an_answer_is_never_markup(server: RunningServer, browser: Browser) -> None:
    """The page is told an answer that means harm, from the stream's bytes on."""
    browser.faults.clear()
    browser.open(f"{server.url}/")
    text = "<script>window.harm = 1</script><img src=x onerror='window.harm = 1'>\\n```html\\n<b onclick=x>\\n```\\nend"
    chunk = f'{{"choices":[{{"delta":{{"content":"{text}"}},"finish_reason":null}}]}}'.replace("'", "\\u0027")
    browser.run(f"window.told = 'data: ' + {chunk!r} + '\\n\\ndata: [DONE]\\n\\n'")
    browser.run(
        "(() => { const own = window.fetch; window.fetch = (path, options) => path.startsWith('/v1')"
        " ? Promise.resolve(new Response(window.told)) : own(path, options); })()"
    )
    ask(browser, "go on")
    browser.until("!!document.querySelector('.message pre code')")
    assert browser.run("document.querySelector('.message pre code').textContent") == "<b onclick=x>"
    shown = browser.run("document.querySelector('.message:last-child > .text').textContent")
    assert shown.startswith("<script>window.harm = 1</script><img") and shown.endswith("end")
    assert browser.run("window.harm") is None
    assert browser.run("document.querySelectorAll('.message img, .message script, .message b').length") == 0


@needs_browser
def test_stop_and_what_is_wrong_is_said(server: RunningServer, browser: Browser) -> None:
    browser.open(f"{server.url}/")
    with server.llm.running.loop.paused():  # the engine stands still meanwhile: the answer cannot end by itself
        ask(browser, "the rain")
        wait_for(lambda: server.service.admission.num_queued, "a request is queued")
        browser.press("Escape")
        browser.until("document.querySelector('.message:last-child').textContent.includes('stopped')")
    browser.until("document.getElementById('state').textContent === 'idle'")
    browser.run("document.getElementById('temperature').value = '-1'")
    ask(browser, "the rain")
    fault = browser.until("document.querySelector('.message:last-child .fault')?.textContent")
    assert fault.startswith("temperature")


@needs_browser
def test_a_key_is_asked_for(tiny: LLM, browser: Browser) -> None:
    with running(tiny, Keys([KEY])) as server:
        browser.open(f"{server.url}/")
        browser.until("document.activeElement.id === 'key'")
        browser.write("a wrong key")
        browser.press("Enter")
        browser.until("document.getElementById('key-fault').textContent.includes('not known')")
        browser.run("document.getElementById('key').value = ''")
        browser.run("document.getElementById('key').focus()")
        browser.write(KEY)
        browser.press("Enter")
        browser.until("document.getElementById('state').textContent === 'idle'")
        assert browser.run("document.getElementById('key-form').hidden")
        ask(browser, "the rain")
        browser.until("document.querySelector('.message:last-child > .text').textContent.length > 1")
        browser.press("Escape")
        browser.run("sessionStorage.clear()")


@needs_browser
def test_it_fits_narrow_windows_and_both_themes(server: RunningServer, browser: Browser) -> None:
    browser.open(f"{server.url}/")
    grounds = []
    for width in (400, 1600):
        for dark in (False, True):
            browser.look(width, 900, dark=dark)
            assert browser.run("document.documentElement.scrollWidth <= innerWidth"), width
            grounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert grounds == [grounds[0], grounds[1]] * 2 and grounds[0] != grounds[1]


@needs_browser
def test_the_keyboard_reaches_everything(server: RunningServer, browser: Browser) -> None:
    browser.look(1200, 900)
    browser.open(f"{server.url}/")
    reached = []
    for _ in range(12):
        browser.press("Tab")
        reached.append(browser.run("document.activeElement.id || document.activeElement.tagName"))
    assert [name for name in ("clear", "log", "question", "send", "SUMMARY") if name not in reached] == []
