"""`twostroke embed`: the vectors of texts. Owns the command, where its texts come from and the form of the output."""

import json
import sys
from typing import Any

import click

from twostroke.cli.loading import load
from twostroke.cli.options import options_of
from twostroke.cli.texts import as_text, decoded
from twostroke.errors import InvalidRequestError
from twostroke.llm.config import LLMConfig
from twostroke.llm.embedding import POOLINGS
from twostroke.program.phase import Phase

_AT_ONCE = 256  # texts


@click.command("embed")
@click.argument("model")
@click.argument("texts", nargs=-1, metavar="[TEXT]...", callback=as_text)
@click.option("--pooling", type=click.Choice(POOLINGS), help="What of a text's rows; default: what the model says.")
@click.option(
    "--normalize/--raw-length", default=None, help="Scale each vector to length 1, or not; default: as the model says."
)
@options_of(LLMConfig, ("context", "threads", "kv", "weights", "isa"))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    model: str, texts: tuple[str, ...], pooling: str | None, normalize: bool | None, as_json: bool, **options: Any
) -> None:
    """Print the embedding of each TEXT, or of each line of stdin: a line of numbers a text.

    A vector is the hidden row of a text's last token after the final norm, or the mean of all its rows. The output
    matrix is not loaded.
    """
    given = list(texts) or _lines()
    with load(model, embed_only=True, **options) as llm:
        unit = llm.embedding.normalize if normalize is None else normalize
        kind = llm.embedding.choose(pooling)
        vectors: list[list[float]] = []
        for first in range(0, len(given), _AT_ONCE):
            found = llm.embed(given[first : first + _AT_ONCE], pooling=kind, normalize=unit)
            if not as_json:
                for vector in found:
                    click.echo(" ".join(f"{number:.8g}" for number in vector.tolist()))
            vectors += found.tolist() if as_json else []
        fields = {"model": model, "pooling": kind, "normalized": unit, "dim": llm.model_config.dim}
        fields["prompt_tokens"] = llm.totals(Phase.PREFILL).tokens
    if as_json:
        click.echo(json.dumps({**fields, "embeddings": vectors}))


def _lines() -> list[str]:
    """The lines of stdin, in UTF-8, each a text. Raises InvalidRequestError where there is none, or an empty one."""
    if sys.stdin.isatty():
        raise click.UsageError("no texts: give them as arguments, or pipe them in, one a line")
    lines = decoded(sys.stdin.buffer.read(), "standard input").splitlines()
    if not lines:
        raise InvalidRequestError("standard input has no texts to embed")
    if "" in lines:
        number = lines.index("") + 1
        raise InvalidRequestError(f"line {number:,} of standard input is empty: each line is a text to embed")
    return lines
