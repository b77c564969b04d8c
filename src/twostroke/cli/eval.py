"""`twostroke eval`: the perplexity of a text. Owns how a text is cut into windows, and the sum over them."""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import click

from twostroke.cli.loading import load
from twostroke.cli.options import options_of
from twostroke.cli.texts import as_text, decoded
from twostroke.errors import InvalidRequestError, ModelOutputError
from twostroke.llm.config import LLMConfig
from twostroke.llm.llm import LLM
from twostroke.text.tokenizer import Tokenizer

PhaseName = Literal["prefill", "decode"]


@click.command("eval")
@click.argument("model")
@click.option("--file", type=click.Path(path_type=Path), help="The text's file, in UTF-8.")
@click.option("--text", callback=as_text, help="The text itself. Without --file and --text it is read from stdin.")
@click.option(
    "--phase",
    type=click.Choice(["prefill", "decode"]),
    default="prefill",
    show_default=True,
    help="Score as prompt rows, or teacher-forced as generated rows.",
)
@click.option("--context", type=click.IntRange(min=2), help="Tokens of a window; default: the model's context.")
@options_of(LLMConfig, ("threads", "kv", "weights", "isa"))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model: str, file: Path | None, text: str | None, phase: PhaseName, as_json: bool, **options: Any) -> None:
    """Score a text with MODEL: the mean negative log-likelihood of its tokens in nats, and the perplexity.

    A text longer than the context is cut into windows that do not overlap, each scored by itself. The first token of
    a window has nothing before it and is not scored; a model that begins texts with BOS has BOS there in every window,
    and all of the text is scored. num_tokens counts the tokens scored.
    """
    if file is not None and text is not None:
        raise click.UsageError("--file and --text exclude each other")
    content = _read(file) if text is None else text
    with load(model, max_batch=1, **options) as llm:
        logprobs = list(_score(llm, content, phase))
    mean_nll = -math.fsum(logprobs) / len(logprobs)
    fields = {"model": model, "phase": phase, "num_tokens": len(logprobs), "mean_nll": mean_nll}
    fields["perplexity"] = _perplexity(mean_nll)
    if as_json:
        click.echo(json.dumps(fields))
    else:
        tokens = f"{len(logprobs):,} tokens scored as {phase} rows"
        click.echo(f"{model}: perplexity {fields['perplexity']:.4f}, {mean_nll:.5f} nats a token, {tokens}")


def _perplexity(mean_nll: float) -> float:
    """Raises ModelOutputError where it is beyond any number."""
    try:
        return math.exp(mean_nll)
    except OverflowError:
        raise ModelOutputError(f"{mean_nll:.1f} nats a token: the model's weights are damaged") from None


def windows(tokenizer: Tokenizer, text: str, size: int) -> list[list[int]]:
    """Ids of a text in stretches of at most `size` tokens, each with BOS in front where the model adds it.

    Raises InvalidRequestError where there is no token to score.
    """
    ids = tokenizer.encode(text, add_special=False)
    first = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    step = size - len(first)
    found = [first + ids[start : start + step] for start in range(0, len(ids), step)]
    scored = [window for window in found if len(window) > 1]
    if not scored:
        raise InvalidRequestError(f"a text of {len(ids)} tokens has none to score: the first has nothing before it")
    return scored


def _score(llm: LLM, text: str, phase: PhaseName) -> Iterator[float]:
    """Log-probability of every scored token."""
    parts: Sequence[list[int]] = windows(llm.tokenizer, text, llm.context)
    for number, window in enumerate(parts, 1):
        if len(parts) > 1:
            click.echo(f"window {number} of {len(parts)}", err=True)
        yield from llm.score(window, phase=phase).logprobs


def _read(path: Path | None) -> str:
    """The whole text of a file, or of stdin, its line ends as they are."""
    if path is None and sys.stdin.isatty():
        raise click.UsageError("no text: give --file or --text, or pipe it in")
    try:
        content = sys.stdin.buffer.read() if path is None else path.read_bytes()
    except OSError as error:
        raise InvalidRequestError(f"{path}: {error.strerror}") from None
    return decoded(content, str(path or "standard input"))
