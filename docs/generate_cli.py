"""Writes the command line's reference from the commands themselves: `python docs/generate_cli.py docs/cli.md`.

Owns the page's form only; every word of it is a command's own help. A test compares the page with what this renders.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

WIDTH = 110

PREFACE = """\
# The command line

Generated from the commands' own help by `make docs`; edit the commands, not this page.
"""


def render(main: click.Command) -> str:
    """The whole page, as Markdown, for the root command `main`."""
    sections = [f"## {context.command_path}\n\n```text\n{help_text(context)}\n```\n" for context in contexts(main)]
    return "\n".join([PREFACE, *sections])


def contexts(command: click.Command, parent: click.Context | None = None) -> Iterator[click.Context]:
    """One context for `command` and for each command below it, as `--help` orders them; hidden ones left out."""
    name = "twostroke" if parent is None else command.name
    context = click.Context(command, parent=parent, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
    yield context
    if isinstance(command, click.Group):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            if child is not None and not child.hidden:
                yield from contexts(child, context)


def help_text(context: click.Context) -> str:
    return "\n".join(line.rstrip() for line in context.command.get_help(context).splitlines())


if __name__ == "__main__":
    from twostroke.cli.main import main

    Path(sys.argv[1]).write_text(render(main), encoding="utf-8")
