"""`twostroke explain`: a real run, or a plan, as one page. Owns the command; the page is `explain`'s."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from twostroke.cli.options import options_of
from twostroke.cli.output_file import check_writable, write_text
from twostroke.cli.texts import as_text
from twostroke.errors import ConfigError, InvalidRequestError
from twostroke.llm.config import LLMConfig, SamplingParams

if TYPE_CHECKING:
    from twostroke.explain.story import Story

_LOADING = ("context", "threads", "kv", "isa")
_SAMPLING = ("temperature", "top_k", "top_p", "seed")
_PLAN_ONLY = ("hardware", "prompt_tokens")
_RUN_ONLY = ("raw", *_SAMPLING, "context", "threads", "isa")
_PROMPT_TOKENS = 512
_INTERRUPTED = 130  # as shells report a program ended by Ctrl-C


@click.command("explain")
@click.argument("model")
@click.argument("prompt", required=False, callback=as_text)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="The page; default: explain.html."
)
@click.option("--raw", is_flag=True, help="Give the model the prompt as it is, without its chat template.")
@click.option("--max-tokens", type=click.IntRange(1, 512), default=64, show_default=True, help="Tokens of the answer.")
@options_of(SamplingParams, _SAMPLING)
@options_of(LLMConfig, _LOADING)
@click.option("--weights", help="Quantise matrices to this type as they load; with --plan any format.")
@click.option("--plan", "is_plan", is_flag=True, help="Run nothing: predict, for --hardware.")
@click.option("--hardware", default="this", show_default=True, help="With --plan: catalogue name, `this`, a TOML file.")
@click.option(
    "--prompt-tokens", type=int, default=_PROMPT_TOKENS, show_default=True, help="With --plan: of the prompt."
)
@click.option("--json", "as_json", is_flag=True, help="Print what the page shows as one JSON object.")
def command(model: str, prompt: str | None, output: Path | None, is_plan: bool, as_json: bool, **options: Any) -> None:
    """Run MODEL on PROMPT and draw what it did, as one HTML file that needs nothing else.

    Tokens and their vectors, prefill and decode under the roofs of this machine, the KV cache as it grows, the
    alternatives at each token, memory, and what another batch, width or machine would change. With --plan nothing is
    run, no weights are needed, and all figures are predictions.
    """
    if is_plan == (prompt is not None):
        raise click.UsageError("--plan takes no PROMPT" if is_plan else "which PROMPT? (or --plan, to run nothing)")
    _refuse_others(click.get_current_context(), is_plan)
    path = output or (None if as_json else Path("explain.html"))
    if path is not None:
        check_writable(path)
    story = _planned(model, options) if is_plan else _run(model, prompt or "", options)
    if as_json:
        click.echo(json.dumps(story.fields()))
    if path is not None:
        from twostroke.explain.page import page_of

        write_text(path, page_of(story))
        click.echo(f"drawn: {path}", err=True)


def _refuse_others(context: click.Context, is_plan: bool) -> None:
    """What would be ignored is refused."""
    for name in _RUN_ONLY if is_plan else _PLAN_ONLY:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = name.replace("_", "-")
            raise click.UsageError(
                f"--{option} is for a run, not for --plan" if is_plan else f"--{option} needs --plan"
            )


def _planned(model: str, options: dict[str, Any]) -> "Story":
    from twostroke.explain.planned import planned_story
    from twostroke.roofline.planned_model import find_planned
    from twostroke.roofline.planner import Scenario, make_plan
    from twostroke.roofline.target import find_target

    scenario = Scenario(options["prompt_tokens"], options["max_tokens"], kv=options["kv"])
    return planned_story(make_plan(find_planned(model, options["weights"]), find_target(options["hardware"]), scenario))


def _run(model: str, prompt: str, options: dict[str, Any]) -> "Story":
    """The answer, then the roofs, which nothing must disturb."""
    from twostroke.cli.answer import collect_answer
    from twostroke.cli.loading import load
    from twostroke.cli.roofs import with_roofs
    from twostroke.cli.summary import account_of
    from twostroke.explain.run import NUM_ALTERNATIVES, Run, story_of
    from twostroke.roofline.planned_model import find_planned

    loading = {name: options[name] for name in (*_LOADING, "weights")}
    LLMConfig.of(**loading)  # what is wrong is told before anything is said
    with load(model, max_batch=1, speculation=False, **loading) as llm:  # without drafts a step is a token
        ids = llm.tokenizer.encode(prompt) if options["raw"] else llm.render([{"role": "user", "content": prompt}]).ids
        if not ids:
            raise InvalidRequestError("the prompt has no tokens")
        sampling = {name: options[name] for name in (*_SAMPLING, "max_tokens")}
        completion = collect_answer(llm.generate(ids, stream=True, logprobs=NUM_ALTERNATIVES, **sampling))
        if completion.finish_reason == "cancelled":
            sys.exit(_INTERRUPTED)
        account = with_roofs(llm, account_of(llm, completion))
        if account.hardware is None:
            raise ConfigError("the roofs of this machine are not known")
        planned = replace(find_planned(str(llm.path), options["weights"]), name=model)
        run = Run(
            llm,
            planned,
            ids,
            None if options["raw"] else prompt,
            completion,
            tuple(llm.running.engine.ledger.recent),
            account.hardware,
        )
        return story_of(run)
