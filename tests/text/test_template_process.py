"""Templates that loop or grow without end are stopped, and nobody else notices."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from twostroke.errors import ChatTemplateError
from twostroke.text import template_process
from twostroke.text.chat import ChatTemplate
from twostroke.text.template_process import TemplateRenderer

USER = [{"role": "user", "content": "hi"}]
GROW = "{% set ns = namespace(x=START) %}{% for i in range(70) %}{% set ns.x = STEP %}{% endfor %}"
LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
HOSTILE = {
    "loop": LOOP,
    "loop without calls": "{% set s = 'a' * 99999 %}{% for a in s %}{% for b in s %}{% endfor %}{% endfor %}",
    "range": "{% for i in range(10 ** 9) %}x{% endfor %}",
    "string": "{{ 'a' * 10 ** 10 }}",
    "doubled string": GROW.replace("START", "'a'").replace("STEP", "ns.x ~ ns.x"),
    "doubled list": GROW.replace("START", "[1]").replace("STEP", "[ns.x, ns.x]") + "{{ ns.x | tojson }}",
    "compared": "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(70) %}{% set n.x = [n.x, n.x] %}"
    "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
    "recursion": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "format": "{{ '%999999999d' | format(1) }}",
    "padded": "{{ 'a'.ljust(10 ** 10) }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "output": "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
    "wide output": "{% for i in range(3000) %}{{ '日' * 1000 }}{% endfor %}",
}


@pytest.fixture(scope="module")
def renderer() -> TemplateRenderer:
    return TemplateRenderer()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_one_clear_error(renderer: TemplateRenderer, name: str) -> None:
    template = ChatTemplate(HOSTILE[name], renderer=renderer)
    start = time.monotonic()
    with pytest.raises(ChatTemplateError, match=r"chat template [^\n]+$"):
        template.render(USER)
    assert time.monotonic() - start < template_process._MAX_WAIT_S
    assert ChatTemplate("{{ messages[0].content }}", renderer=renderer).render(USER) == "hi"


def test_the_last_byte_of_the_bound_may_be_written(renderer: TemplateRenderer) -> None:
    fill = "{% for i in range(8) %}{{ 'x' * 1048576 }}{% endfor %}"
    assert len(ChatTemplate(fill, renderer=renderer).render(USER)) == 8 << 20
    with pytest.raises(ChatTemplateError, match="more than 8,388,608 bytes"):
        ChatTemplate(fill + "y", renderer=renderer).render(USER)


def test_others_are_not_held_up(renderer: TemplateRenderer) -> None:
    """While one template loops, another thread's renderings go on, on the same renderer."""
    failed: list[str] = []

    def hostile() -> None:
        with pytest.raises(ChatTemplateError) as raised:
            ChatTemplate(LOOP, renderer=renderer).render(USER)
        failed.append(str(raised.value))

    thread = threading.Thread(target=hostile)
    thread.start()
    template = ChatTemplate("{{ messages[0].content }}", renderer=renderer)
    num_rendered = 0
    while thread.is_alive():
        assert template.render(USER) == "hi"
        num_rendered += 1
    thread.join()
    assert failed
    assert "too long" in failed[0]
    assert num_rendered > 10


def test_many_threads_share_a_renderer(renderer: TemplateRenderer) -> None:
    template, wrong = ChatTemplate("{{ messages[0].content }}", renderer=renderer), []

    def render(name: str) -> None:
        for index in range(30):
            content = f"{name} {index}"
            if template.render([{"role": "user", "content": content}]) != content:
                wrong.append(content)

    threads = [threading.Thread(target=render, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_process_that_has_ended_is_replaced() -> None:
    renderer = TemplateRenderer()
    template = ChatTemplate("{{ messages[0].content }}", renderer=renderer)
    assert template.render(USER) == "hi"
    (worker,) = renderer._idle
    os.kill(worker._process.pid, signal.SIGKILL)
    wait_for(lambda: not worker.is_running)
    assert template.render(USER) == "hi"


def test_processes_end_with_the_template() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    template.start()
    process_id = template._renderer._idle[0]._process.pid
    assert is_running(process_id)
    del template
    gc.collect()
    wait_for(lambda: not is_running(process_id))


def test_a_process_that_cannot_start_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(ChatTemplateError, match="cannot start the process that renders chat templates"):
        ChatTemplate("x").render(USER)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ChatTemplateError, match="cannot start the process that renders chat templates"):
        ChatTemplate("x").render(USER)


def test_text_of_any_kind_crosses(renderer: TemplateRenderer) -> None:
    content = 'a\n\r\u2028\x00\x1e"\\é日🚢'
    template = ChatTemplate("{{ messages[0].content }}", renderer=renderer)
    assert template.render([{"role": "user", "content": content}]) == content
