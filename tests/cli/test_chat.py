"""The chat of `twostroke run` on a pseudo-terminal: turns, several lines, commands, Ctrl-C and Ctrl-D."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tiny import write_tiny_gguf

from twostroke import LLM
from twostroke.cli.chat import Chat, Reader
from twostroke.cli.run import RunOptions

# The child makes the pseudo-terminal its own, so that Ctrl-C on it is a signal.
CODE = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from twostroke.cli.main import main; main()"
PROMPT, MORE = ">>> ", "... "
TURNS = ("--temperature", "0", "--max-tokens", "6", "--ignore-eos")


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._file, child = pty.openpty()
        command = [sys.executable, "-c", CODE, "run", *arguments, "--threads", "1", "--no-probe"]
        pipes = {"stdin": child, "stdout": child, "stderr": child}
        environment = {**os.environ, "TERM": "dumb", **environment}
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
        os.close(child)
        self.text = ""

    def send(self, text: str) -> None:
        os.write(self._file, text.encode(errors="surrogateescape"))

    def until(self, end: str, seconds: float = 60) -> str:
        """What is shown up to the next `end`, which is taken too."""
        deadline = time.monotonic() + seconds
        while end not in self.text:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._file], [], [], left)[0]:
                raise AssertionError(f"{end!r} was not shown: {self.text!r}")
            try:
                self.text += os.read(self._file, 65536).decode(errors="replace")
            except OSError:  # how Linux tells that nobody has the other side any more
                raise AssertionError(f"ended before {end!r} was shown: {self.text!r}") from None
        shown, _, self.text = self.text.partition(end)
        return shown

    def until_something(self) -> None:
        """Waits for text that is not blank, which stays."""
        while not self.text.strip():
            assert select.select([self._file], [], [], 60)[0]
            self.text += os.read(self._file, 65536).decode(errors="replace")

    def close(self) -> int:
        """The exit code, once the process has ended."""
        code = self.process.wait(timeout=60)
        os.close(self._file)
        return code


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("chat") / "tiny.gguf", seed=5, context=100_000))


@pytest.fixture
def terminal(model: str) -> Iterator[Terminal]:
    chat = Terminal(model, *TURNS)
    chat.until(PROMPT)
    yield chat
    chat.process.kill()


def computed_and_cached(shown: str) -> tuple[int, int]:
    """Prompt tokens of a turn, from the line under its answer."""
    match = re.search(r"\[prefill ([\d,]+) tokens(?: after ([\d,]+) cached)? at", shown)
    assert match, shown
    computed, cached = (int((number or "0").replace(",", "")) for number in match.groups())
    return computed, cached


def prefilled(shown: str) -> int:
    """All prompt tokens of a turn."""
    return sum(computed_and_cached(shown))


def test_a_conversation_grows_until_it_is_cleared(terminal: Terminal) -> None:
    counts, computed = [], 0
    for text in ("the rain", "the rain", "/clear", "the rain"):
        terminal.send(f"{text}\n")
        shown = terminal.until(PROMPT)
        if text == "/clear":
            assert "new conversation" in shown
        else:
            counts.append(prefilled(shown))
            computed += computed_and_cached(shown)[0]
    assert counts[0] == counts[2] < counts[1]
    assert computed < sum(counts)  # the second turn begins as the first did
    terminal.send("/bye\n")
    shown = terminal.until("peak RSS")
    assert re.search(rf"prefill +{computed} tokens", shown)
    assert terminal.close() == 0


def test_several_lines(terminal: Terminal) -> None:
    counts = []
    for parts in (['"""the rain\n', 'in the sea"""\n'], ['"""\n', "the rain\n", "in the sea\n", '"""\n'],
                  ["the rain\\\n", "in the sea\n"]):  # fmt: skip
        for part in parts[:-1]:
            terminal.send(part)
            terminal.until(MORE)
        terminal.send(parts[-1])
        counts.append(prefilled(terminal.until(PROMPT)))
        terminal.send("/clear\n")
        terminal.until(PROMPT)
    assert len(set(counts)) == 1
    terminal.send("the rain\n")
    assert prefilled(terminal.until(PROMPT)) < counts[0]


def test_a_line_that_is_not_utf8_is_refused_and_the_chat_goes_on(terminal: Terminal) -> None:
    terminal.send("caf\udcff\n")
    assert "[the text is not UTF-8: byte 3 is 0xff]" in terminal.until(PROMPT)
    terminal.send("the rain\n")
    assert prefilled(terminal.until(PROMPT)) > 0


@pytest.mark.parametrize(
    ("environment", "is_dim"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
def test_notes_are_dim_where_the_terminal_may_be_sent_that(
    model: str, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], is_dim: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    chat = Terminal(model, *TURNS, **environment)
    chat.until(PROMPT)
    chat.send("/nothing\n")
    assert ("\x1b[2m" in chat.until(PROMPT)) == is_dim
    chat.send("/bye\n")
    assert chat.close() == 0


def test_commands(terminal: Terminal) -> None:
    terminal.send("/help\n")
    assert "/clear" in terminal.until(PROMPT)
    terminal.send("/nothing\n")
    assert "no command" in terminal.until(PROMPT)
    terminal.send("/ the path /usr/bin\n")
    assert prefilled(terminal.until(PROMPT)) > 0
    terminal.send("\n")
    assert "prefill" not in terminal.until(PROMPT)
    terminal.send("\x04")
    terminal.until("peak RSS")
    assert terminal.close() == 0


def test_ctrl_c_ends_the_answer_and_not_the_chat(model: str) -> None:
    terminal = Terminal(model, "--temperature", "1", "--ignore-eos")
    terminal.until(PROMPT)
    terminal.send("the rain\n")
    terminal.until("the rain\r\n")
    terminal.until_something()
    terminal.send("\x03")
    assert prefilled(terminal.until(PROMPT)) > 0
    terminal.send("\x04")
    terminal.until("peak RSS")
    assert terminal.close() == 0


def test_ctrl_c_twice_at_the_prompt_leaves(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal: between readline's prompt and its wait, a signal stays unseen until the next key."""
    typed = iter((KeyboardInterrupt(), "/help", KeyboardInterrupt(), KeyboardInterrupt(), "never read"))

    def read(self: Reader) -> str:
        text = next(typed)
        if isinstance(text, KeyboardInterrupt):
            raise text
        return text

    monkeypatch.setattr(Reader, "read", read)
    options = RunOptions(model, False, None, False, True, False, False, {}, {})
    with LLM(model, threads=1) as llm:
        Chat(llm, options).run()
    assert next(typed) == "never read"
    assert capsys.readouterr().err.count("Ctrl-C again") == 2


def test_a_full_context_suggests_clearing(model: str) -> None:
    terminal = Terminal(model, *TURNS, "--context", "64")
    terminal.until(PROMPT)
    terminal.send("the rain " * 40 + "\n")
    assert re.search(r"exceeds the context of 64 tokens.*/clear", terminal.until(PROMPT))
    terminal.send("ab\n")
    assert prefilled(terminal.until(PROMPT)) < 64
    terminal.process.kill()


def test_a_model_without_template_is_refused_at_once(model: str, tmp_path: Path) -> None:
    base = tmp_path / "base.gguf"
    base.write_bytes(Path(model).read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_nothing_"))
    terminal = Terminal(str(base))
    assert "twostroke: " in terminal.until("--raw")
    assert terminal.close() == 1
