"""`twostroke run`: one answer, or a chat. Owns the command, where its prompt comes from, and the order of a run."""

import json
import select
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.figures import bytes_text
from twostroke.cli.options import options_of
from twostroke.cli.texts import as_text, decoded
from twostroke.llm.config import LLMConfig, SamplingParams
from twostroke.weights.aliases import DEFAULT_MODEL

if TYPE_CHECKING:
    from twostroke.llm.generation import Generation
    from twostroke.llm.llm import LLM
    from twostroke.llm.results import Completion

LOADING = ("context", "threads", "kv", "weights", "mlock", "isa", "speculation")
SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "max_tokens",
    "stop",
    "ignore_eos",
)
_INTERRUPTED = 130  # as shells report a program ended by Ctrl-C
_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What to answer and what to say about it; `loading` and `sampling` hold fields of LLMConfig and SamplingParams."""

    model: str
    raw: bool
    system: str | None
    probe: bool
    summary: bool
    verbose: bool
    as_json: bool
    loading: dict[str, Any]
    sampling: dict[str, Any]


@click.command("run")
@click.argument("model", default=DEFAULT_MODEL)
@click.argument("prompt", required=False, callback=as_text)
@click.option("--raw", is_flag=True, help="Give the model the prompt as it is, without its chat template.")
@click.option("--system", metavar="TEXT", callback=as_text, help="A system message before the prompt.")
@options_of(SamplingParams, SAMPLING)
@options_of(LLMConfig, LOADING)
@click.option("--probe/--no-probe", default=True, help="Compare with this machine's roofs, probed after the answer.")
@click.option("--summary/--no-summary", default=True, help="Say on stderr what prefill and decode cost.")
@click.option("-v", "--verbose", is_flag=True, help="Say which file, threads, instruction set and KV pool are used.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, once the answer is complete.")
def command(model: str, prompt: str | None, **flags: Any) -> None:
    """Answer PROMPT with MODEL, or chat where there is no prompt and a terminal.

    Text piped in is the prompt, or follows it. The answer goes to stdout as it comes, everything else to stderr.
    Ctrl-C ends the answer. In a chat, a line that ends in a backslash goes on in the next, three double quotes begin
    and end a text of several lines, and /help says the rest.
    """
    loading = {name: flags.pop(name) for name in LOADING}
    sampling = {name: flags.pop(name) for name in SAMPLING}
    options = RunOptions(model=model, loading=loading, sampling=sampling, **flags)
    if options.raw and options.system is not None:
        raise click.UsageError("--system has no place in a --raw prompt")
    _check_order(model, prompt)
    text = _prompt(prompt)
    if text is None and (options.raw or options.as_json):
        raise click.UsageError(f"{'--raw' if options.raw else '--json'} needs a prompt")
    with _load(options) as llm:
        if text is None:
            from twostroke.cli.chat import Chat

            Chat(llm, options).run()
        else:
            _answer(llm, options, text)


def _check_order(model: str, prompt: str | None) -> None:
    """Raises UsageError where the only argument is a text and no model: the first argument is MODEL."""
    if prompt is None and any(character.isspace() for character in model) and not Path(model).exists():
        example = f"twostroke run {DEFAULT_MODEL} PROMPT"
        raise click.UsageError(f"{model!r} is no model, which goes before the prompt, as in: {example}")


def _prompt(prompt: str | None) -> str | None:
    """The prompt, and after it what is piped in; None for a chat."""
    stdin = sys.stdin.buffer
    if stdin.isatty():
        return prompt
    try:
        if not select.select([stdin], [], [], _PATIENCE_S)[0]:
            click.echo("waiting for the end of standard input, which is not a terminal", err=True)
    except (OSError, ValueError):
        pass  # not a file that can be waited for
    piped = decoded(stdin.read(), "standard input").rstrip("\n")
    if prompt is None and not piped:
        raise click.UsageError("no prompt: standard input is empty, and no terminal to chat on")
    return "\n\n".join(part for part in (prompt, piped) if part) or prompt


def _load(options: RunOptions) -> "LLM":
    from twostroke.cli.loading import load

    llm = load(options.model, max_batch=1, **options.loading)
    if options.verbose:
        for line in _about(llm):
            click.echo(line, err=True)
    return llm


def _about(llm: "LLM") -> list[str]:
    memory = llm.memory
    return [
        f"model      {llm.path}, {llm.model_config.architecture}, context of {llm.context:,} tokens",
        f"threads    {llm.threads.reason}",
        f"isa        {llm.isa}",
        f"KV pool    {bytes_text(memory.kv_pool_bytes)} of {llm.config.kv}: {memory.pool_tokens:,} tokens,"
        f" {bytes_text(memory.kv_bytes_per_token)} each",
        f"sampling   {', '.join(f'{name} {value:g}' for name, value in llm.defaults.items())} unless given",
        f"loaded     in {llm.load_seconds:.2f} s",
    ]


def _start(llm: "LLM", options: RunOptions, text: str) -> "Generation":
    if options.raw:
        return llm.generate(text, stream=True, **options.sampling)
    system = [] if options.system is None else [{"role": "system", "content": options.system}]
    return llm.chat([*system, {"role": "user", "content": text}], stream=True, **options.sampling)


def _answer(llm: "LLM", options: RunOptions, text: str) -> None:
    from twostroke.cli.answer import collect_answer, show_answer

    generation = _start(llm, options, text)
    completion = collect_answer(generation) if options.as_json else show_answer(generation)
    _account(llm, options, completion)


def _account(llm: "LLM", options: RunOptions, completion: "Completion") -> None:
    """What there is to say after an answer: what it cost, and how close that came to the machine's roofs."""
    from twostroke.cli.roofs import with_roofs
    from twostroke.cli.summary import account_of, answer_line, paging_line, resident_line, run_fields, summary_lines

    is_cut = completion.finish_reason == "cancelled"
    account = account_of(llm, completion)
    if options.probe and not is_cut and (options.as_json or options.summary):
        account = with_roofs(llm, account)
    if options.as_json:
        click.echo(json.dumps(run_fields(options.model, completion, account)))
    elif options.summary:
        click.echo(err=True)
        for line in (*summary_lines(account), answer_line(completion)):
            click.echo(line, err=True)
    if options.verbose:
        click.echo(resident_line(), err=True)
    if warning := paging_line(completion):
        click.echo(warning, err=True)
    if is_cut:
        sys.exit(_INTERRUPTED)
