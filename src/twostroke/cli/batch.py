"""`twostroke batch`: a file of requests answered offline. Owns the command and its summary."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.options import options_of
from twostroke.errors import ConfigError
from twostroke.llm.config import LLMConfig
from twostroke.weights.aliases import DEFAULT_MODEL

if TYPE_CHECKING:
    from twostroke.llm.llm import LLM
    from twostroke.server.batch.output import BatchOutput
    from twostroke.server.batch.run import BatchCounts

LOADING = (
    *("context", "threads", "kv", "weights", "mlock", "isa", "max_step_tokens", "speculation"),
    *("kv_disk", "kv_disk_size"),
)
_MAX_BATCH = 32


@click.command("batch")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="Who answers; bodies may name it.")
@click.option("--served-model-name", multiple=True, metavar="TEXT", help="Another name that bodies may have for it.")
@click.option("--max-batch", default=_MAX_BATCH, show_default=True, help="Requests that run together.")
@options_of(LLMConfig, LOADING)
@click.option("--json", "as_json", is_flag=True, help="Print a summary as one JSON object.")
def command(
    source: Path, target: Path, model: str, served_model_name: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Answer the requests in IN, one JSON object a line, and write a line for each to OUT.

    Lines are as in OpenAI's batch API, for /v1/chat/completions, /v1/completions and /v1/embeddings. OUT has them in
    the order in which they were done. What OUT holds already is kept and not run again: after an interruption the same
    command goes on. A line that is no request gets a line that says why.
    """
    from twostroke.server.batch.output import BatchOutput
    from twostroke.server.batch.run import survey

    if target.exists() and source.exists() and target.samefile(source):
        raise ConfigError(f"IN and OUT are one file, {source}")
    if not source.is_file():
        raise ConfigError(f"cannot read {source}: it is no file")
    with BatchOutput(target) as output:
        if output.num_cut:
            click.echo(f"{target}: a last line that was cut ({output.num_cut:,} bytes) is removed", err=True)
        counts = survey(source, output)
        fields = _answer(source, output, counts, model, served_model_name, options)
    if as_json:
        click.echo(json.dumps({"model": model, "input": str(source), "output": str(target), **fields}))


def _answer(
    source: Path,
    output: "BatchOutput",
    counts: "BatchCounts",
    model: str,
    names: tuple[str, ...],
    options: dict[str, Any],
) -> dict[str, Any]:
    """Runs what is missing; the summary, which is said on stderr too."""
    import asyncio

    from twostroke.cli.batch_progress import BatchProgress
    from twostroke.cli.loading import load, served_name
    from twostroke.server.batch.run import BatchRun

    if counts.num_kept == counts.num_lines:
        click.echo(f"batch      all {counts.num_lines:,} are answered already", err=True)
        return {**asdict(counts), "seconds": 0.0, "tok_s": 0.0, "prefill": None, "decode": None}
    with load(model, **options) as llm:
        progress = BatchProgress(counts)
        run = BatchRun(source, output, counts, progress.show)
        try:
            asyncio.run(run.run(llm, (served_name(model), *names)))
        except KeyboardInterrupt:
            progress.clear()
            done = counts.num_kept + counts.num_answered
            said = f"interrupted: {done:,} of {counts.num_lines:,} are answered; the same command goes on from there"
            click.echo(said, err=True)
            raise
        finally:
            progress.clear()
        return _summary(llm, counts, progress.seconds)


def _summary(llm: "LLM", counts: "BatchCounts", seconds: float) -> dict[str, Any]:
    from twostroke.cli.summary import account_of_all, summary_lines
    from twostroke.program.phase import Phase
    from twostroke.server.timings import phase_fields

    rate = counts.completion_tokens / seconds
    kept = f", {counts.num_kept:,} kept from before" if counts.num_kept else ""
    errors = f", {counts.num_failed:,} of them errors" if counts.num_failed else ""
    click.echo(
        f"batch      {counts.num_answered:,} answered{errors}{kept}   {seconds:.1f} s   {rate:,.0f} tok/s", err=True
    )
    *phases, _ = summary_lines(account_of_all(llm, 0))
    for line in phases:
        click.echo(line, err=True)
    fields = {phase.value: phase_fields([llm.totals(phase)], None) for phase in Phase}
    return {**asdict(counts), "seconds": seconds, "tok_s": rate, **fields}
