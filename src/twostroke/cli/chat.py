"""The chat of `twostroke run`. Owns the conversation and its commands; a text of several lines is read here, too.

Every turn gives the model the whole conversation.
"""

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from twostroke.cli.answer import show_answer
from twostroke.cli.figures import printable
from twostroke.cli.roofs import with_roofs
from twostroke.cli.summary import account_of, account_of_all, paging_line, short_line, summary_lines
from twostroke.cli.texts import utf8_text
from twostroke.errors import ContextLengthError, NotEnoughMemoryError, TwostrokeError
from twostroke.llm.results import Completion

if TYPE_CHECKING:
    from twostroke.cli.run import RunOptions
    from twostroke.llm.llm import LLM

HELP = """\
/clear   start a new conversation (the system message stays)
/help    this
/bye     leave, as Ctrl-D does

A line that ends in a backslash goes on in the next. A line that begins with
three double quotes begins a text of several lines, which ends with three double
quotes. Ctrl-C ends an answer; at the prompt, twice, it leaves.
"""
_QUOTES = '"""'


@dataclass(slots=True)
class Reader:
    """What the user types. `read` raises EOFError for Ctrl-D and KeyboardInterrupt for Ctrl-C."""

    def read(self) -> str:
        """One text: a line, lines joined at backslashes, or what is between triple quotes."""
        line = input(">>> ")
        if line.lstrip().startswith(_QUOTES):
            return self._quoted(line.lstrip().removeprefix(_QUOTES))
        lines = [line]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(input("... "))
        return "\n".join(lines).strip()

    def _quoted(self, first: str) -> str:
        lines = [first]
        while not lines[-1].rstrip().endswith(_QUOTES):
            lines.append(input("... "))
        lines[-1] = lines[-1].rstrip().removesuffix(_QUOTES)
        return "\n".join(lines).strip("\n")


class Chat:
    """A conversation on the terminal, until the user leaves."""

    def __init__(self, llm: "LLM", options: "RunOptions") -> None:
        self._llm = llm
        self._options = options
        self._system = [] if options.system is None else [{"role": "system", "content": options.system}]
        self._messages = list(self._system)
        self._most_tokens = 0

    def run(self) -> None:
        """Raises ChatTemplateError at once where the model has no template; other errors end a turn, not the chat."""
        self._llm.render([*self._system, {"role": "user", "content": "Hi"}])
        _enable_editing()
        click.echo(f"{self._options.model}: /help says what there is, /bye or Ctrl-D leaves", err=True)
        reader, was_interrupted = Reader(), False
        while True:
            try:
                text = reader.read()
            except EOFError:
                click.echo()
                break
            except KeyboardInterrupt:
                click.echo()
                if was_interrupted:
                    break
                _note("Ctrl-C again, /bye or Ctrl-D leaves")
                was_interrupted = True
                continue
            was_interrupted = False
            if text == "/bye":
                break
            try:
                self._take(text)
            except KeyboardInterrupt:  # while the machine is probed, after an answer
                click.echo(err=True)
        self._finish()

    def _take(self, text: str) -> None:
        """A command, or the user's turn."""
        if text == "/clear":
            self._messages = list(self._system)
            _note("a new conversation")
        elif text == "/help":
            click.echo(HELP, err=True)
        elif re.fullmatch(r"/\w*", text):
            _note(f"{text} is no command; /help says what there is")
        elif text:
            self._turn(text)

    def _turn(self, text: str) -> None:
        try:
            messages = [*self._messages, {"role": "user", "content": utf8_text(text, "the text")}]
            completion = show_answer(self._llm.chat(messages, stream=True, **self._options.sampling))
        except (ContextLengthError, NotEnoughMemoryError) as error:
            _note(f"{printable(str(error))}; /clear starts a new conversation")
        except TwostrokeError as error:
            _note(printable(str(error)))
        else:
            if completion.text:
                self._messages = [*messages, {"role": "assistant", "content": completion.text}]
            self._account_for(completion)

    def _account_for(self, completion: Completion) -> None:
        used = completion.prompt_tokens + completion.completion_tokens
        self._most_tokens = max(self._most_tokens, used - 1)
        if used >= self._llm.context:
            _note(f"the context of {self._llm.context:,} tokens is full; /clear starts a new conversation")
        elif completion.finish_reason == "length":
            _note("cut at the most tokens asked for")
        if warning := paging_line(completion):
            _note(warning)
        if self._options.summary and completion.token_ids:
            account = account_of(self._llm, completion)
            is_whole = completion.finish_reason != "cancelled"
            account = with_roofs(self._llm, account) if self._options.probe and is_whole else account
            _note(short_line(account, completion.cached_tokens))

    def _finish(self) -> None:
        if self._options.summary and self._most_tokens:
            account = account_of_all(self._llm, self._most_tokens)
            for line in summary_lines(with_roofs(self._llm, account) if self._options.probe else account):
                click.echo(line, err=True)


def _note(text: str) -> None:
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    click.echo(f"[{text}]" if is_plain else click.style(f"[{text}]", dim=True), err=True)


def _enable_editing() -> None:
    """Arrow keys and history for `input`, where Python has them."""
    try:
        import readline  # noqa: F401
    except ImportError:
        return
