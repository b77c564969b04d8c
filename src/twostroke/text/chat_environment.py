"""The Jinja environment of chat templates. Owns what a template may call and how much it may write; how long it may
take is `template_worker.py`'s, in whose process it runs. Conforms to `transformers`: same options, filters, globals
and tags.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from twostroke.errors import ChatTemplateError

MAX_RENDERED_BYTES = 8 * 2**20


class CompiledTemplate:
    """A template compiled in a sandbox of its own. Raises ChatTemplateError when it does not compile."""

    def __init__(self, source: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = self._strftime_now
        self._now = datetime.min
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(tree)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ChatTemplateError(f"the chat template does not compile: {_one_line(error)}") from error

        constants = (node.value for node in tree.find_all(nodes.Const))
        self.literals = sorted({value for value in constants if isinstance(value, str)})
        """The template's string constants."""

    def render(self, variables: Mapping[str, object], now: datetime) -> str:
        """The rendered text; `now` is the time that `strftime_now` formats. Raises ChatTemplateError, with the
        template's own words, when it fails or writes more than MAX_RENDERED_BYTES."""
        self._now = now
        pieces: list[str] = []
        num_bytes = 0
        try:
            for piece in self._template.generate(variables):
                pieces.append(piece)
                num_bytes += len(piece.encode("utf-8", errors="surrogatepass"))
                if num_bytes > MAX_RENDERED_BYTES:
                    raise ChatTemplateError(f"the chat template writes more than {MAX_RENDERED_BYTES:,} bytes")
        except ChatTemplateError:
            raise
        except Exception as error:  # a template is a program from the model file: it can raise anything
            raise ChatTemplateError(f"the chat template fails on these messages: {_one_line(error)}") from error
        return "".join(pieces)

    def _strftime_now(self, pattern: str) -> str:
        return self._now.strftime(pattern)


class _GenerationTag(Extension):
    """`{% generation %}`: marks what the model wrote, for training; its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own filter: no HTML escapes, no ASCII escapes, keys in their order."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
