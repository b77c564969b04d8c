"""The command line's root: which commands there are, and what any of them says when it fails.

Owns error lines and exit codes: 0 done, 1 failed, 2 bad usage, 130 interrupted. A command's module is imported when
the command is used, so that none pays for another.
"""

import errno
import gc
import os
import sys
from importlib import import_module
from typing import IO, Any

import click

from twostroke import __version__
from twostroke.errors import TwostrokeError, in_words

COMMANDS = (
    *("run", "serve", "batch", "bench", "plan", "fit", "explain", "embed"),
    *("pull", "list", "rm", "inspect", "quantize", "eval", "probe"),
)
_INTERRUPTED = 130  # as shells report a program ended by Ctrl-C


def collect_rarely() -> None:
    """Garbage is looked for after many more new objects than by default: while modules are imported there is none, and
    looking for it took a fifteenth of the time to start."""
    gc.set_threshold(100_000, 20, 20)


class Commands(click.Group):
    """A group whose commands are the `command` of the modules of their names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"twostroke.cli.{cmd_name}").command
        return command

    def main(self, *args: Any, **extra: Any) -> Any:
        """The whole run. A standard stream that is closed is as good as /dev/null."""
        collect_rarely()
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as the process lives
        return super().main(*args, **extra)

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> click.Context:
        """The root's context, always of the same name."""
        try:
            return super().make_context("twostroke", args, *more, **extra)
        except click.UsageError as error:
            raise Misuse(error) from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(_INTERRUPTED) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; an error that the user can cause becomes click's, which `main` prints."""
        try:
            return super().invoke(ctx)
        except TwostrokeError as error:
            raise Failure(str(error)) from error
        except click.UsageError as error:
            raise Misuse(error) from error
        except MemoryError as error:
            raise Failure("not enough memory: the system refused an allocation (`ulimit -v`?)") from error
        except OSError as error:  # of standard output, most likely: files have errors of their own
            if error.errno == errno.EPIPE:
                raise
            raise Failure(f"{error.filename or 'standard output'}: {in_words(error)}") from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(_INTERRUPTED) from None


class Failure(click.ClickException):
    """One line on stderr, exit code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        from twostroke.cli.figures import printable  # names in a message may be a model file's

        click.echo(f"twostroke: {printable(' '.join(self.format_message().split()))}", file=file, err=file is None)


class Misuse(Failure):
    """One line on stderr that says where help is, exit code 2."""

    exit_code = 2

    def __init__(self, error: click.UsageError) -> None:
        path = error.ctx.command_path if error.ctx else "twostroke"
        super().__init__(f"{error.format_message()} (see `{path} --help`)")


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="twostroke %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Run language models on the CPU, with an account of what prefill and decode cost.

    MODEL is an alias (`twostroke list`), a GGUF file, a Hugging Face directory, hf:owner/name[/file], or the URL of a
    GGUF file.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
