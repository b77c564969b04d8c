"""`twostroke plan`: what a model takes on hardware, and how fast it would be. Owns the command and its sweeps."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.output_file import check_writable, write_text
from twostroke.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.roofline.offload import Offload
    from twostroke.roofline.planner import Plan, Scenario
    from twostroke.roofline.target import Target

_MOST_POINTS = 500
_ANSWER = 256


@dataclass(frozen=True, slots=True)
class Question:
    """What to plan: each of these may be a list, and all combinations are planned."""

    model: str
    hardware: tuple[str, ...]
    weights: tuple[str | None, ...]
    contexts: tuple[int | None, ...]
    batches: tuple[int, ...]
    fixed: dict[str, Any]
    machine: dict[str, Any]
    offload: tuple[str | None, float | None]

    @property
    def is_sweep(self) -> bool:
        return self.num_points > 1

    @property
    def num_points(self) -> int:
        return len(self.hardware) * len(self.weights) * len(self.contexts) * len(self.batches)


@click.command("plan")
@click.argument("model", required=False)
@click.option("--hardware", default="this", help="Catalogue name, `this`, a TOML file, or a list: a,b,c.")
@click.option("--weights", help="Format of the weights, or a list: bf16,q8_0,q4_k_m; default: as published.")
@click.option("--kv", default="f16", show_default=True, help="Type of the KV cache: f16, q8_0, fp8 ...")
@click.option("--context", help="Tokens of prompt and answer, or a list: 2048,8192.")
@click.option("--prompt", type=int, help="Tokens of the prompt; default: the context less the answer, else 512.")
@click.option("--answer", type=int, default=_ANSWER, show_default=True, help="Tokens of the answer.")
@click.option("--batch", default="1", help="Requests at once, a list, or a doubling range: 1..64.")
@click.option("--cached", type=int, default=0, help="Tokens of the prompt that the prefix cache has.")
@click.option("--speculate", metavar="N:RATE", help="N tokens guessed ahead, each right with this chance.")
@click.option("--engine", help="Engine whose efficiency to assume: llama.cpp, vllm, twostroke ...")
@click.option("--offload", help="Where weights that do not fit lie: `host` or `disk`, as KIND[:GB/s].")
@click.option("--cache-hits", type=float, help="Share of experts found in memory, with --offload; default: by size.")
@click.option("--bandwidth", type=float, help="Hardware of your own: memory bandwidth, GB/s.")
@click.option("--memory", type=float, help="Memory in GiB: of your own hardware, or instead of the catalogue's.")
@click.option("--tflops", type=float, help="Hardware of your own: dense 16-bit TFLOP/s.")
@click.option("--claim", metavar="TEXT", help='Judge a claim: "MODEL at 45 tok/s on HARDWARE in fp16".')
@click.option("--check", is_flag=True, help="Run the same thing here and compare.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Draw it as one self-contained page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    model: str | None, claim: str | None, check: bool, html: Path | None, as_json: bool, **options: Any
) -> None:
    """Predict the memory and speed of MODEL on hardware: no weights and no network are needed.

    MODEL is a catalogue name (llama-3.1-8b), a config.json, a Hugging Face directory, a GGUF file or an alias. Every
    prediction has a range, within which 80% of measurements of its kind lay.
    """
    if claim is not None:
        _judge(claim, _question(model or "", options), as_json)
        return
    if model is None:
        raise click.UsageError("which MODEL? (or --claim TEXT)")
    if html is not None:
        check_writable(html)
    question = _question(model, options)
    plans = [*_plans(question)]
    if check:
        from twostroke.cli.plan_check import check_plan

        check_plan(plans[0], as_json)
    elif as_json:
        from twostroke.roofline.plan_fields import plan_fields

        points = [plan_fields(plan) for plan in plans]
        click.echo(json.dumps({"points": points} if question.is_sweep else points[0]))
    else:
        _show(plans)
    if html is not None:
        from twostroke.cli.plan_page import page

        write_text(html, page(plans))
        click.echo(f"drawn: {html}", err=True)


def _show(plans: list["Plan"]) -> None:
    from twostroke.cli.plan_report import plan_lines, sweep_lines

    for line in plan_lines(plans[0]) if len(plans) == 1 else sweep_lines(plans):
        click.echo(line)


def _judge(text: str, question: Question, as_json: bool) -> None:
    from twostroke.cli.plan_report import claim_lines
    from twostroke.roofline.claim import judge

    judged = judge(text, _scenario(question, question.contexts[0], question.batches[0]))
    if as_json:
        click.echo(
            json.dumps(
                {
                    "claim": text,
                    "verdict": judged.verdict,
                    "claimed_tok_s": judged.claimed_tok_s,
                    "limit_tok_s": judged.limit_tok_s,
                    "predicted_tok_s": judged.plan.tok_s,
                    "reasons": list(judged.reasons),
                }
            )
        )
        return
    for line in claim_lines(judged):
        click.echo(line)


def _plans(question: Question) -> Iterator["Plan"]:
    """One plan a combination. Raises ConfigError for more than are of any use."""
    from twostroke.roofline.planned_model import find_planned
    from twostroke.roofline.planner import make_plan

    if question.num_points > _MOST_POINTS:
        raise ConfigError(f"a sweep has at most {_MOST_POINTS} points, not {question.num_points}")
    targets = [_target(name, question.machine) for name in question.hardware]
    models = [find_planned(question.model, weights) for weights in question.weights]
    for target, model, context, batch in product(targets, models, question.contexts, question.batches):
        scenario = _scenario(question, context, batch, _offload(question, target), answers=not model.is_encoder)
        yield make_plan(model, target, scenario)


def _target(name: str, machine: dict[str, Any]) -> "Target":
    from twostroke.roofline.target import custom_target, find_target, with_memory

    given = {key: value for key, value in machine.items() if value is not None}
    if "bandwidth_gb_s" in given:
        return custom_target(given)
    target = find_target(name)
    return with_memory(target, int(given["memory_gib"] * 2**30)) if "memory_gib" in given else target


def _offload(question: Question, target: "Target") -> "Offload | None":
    from twostroke.roofline.offload import offload_to

    tier, hits = question.offload
    return None if tier is None else offload_to(tier, target, hits)


def _scenario(
    question: Question, context: int | None, batch: int, offload: "Offload | None" = None, *, answers: bool = True
) -> "Scenario":
    from twostroke.roofline.planner import Scenario

    fixed = {**question.fixed, "offload": offload}
    prompt, answer = fixed.pop("prompt"), fixed.pop("answer")
    if not answers:
        answer = 0
    if context is not None:
        if prompt is None:
            prompt = context - min(answer, max(1, context // 2)) if answers else context
        answer = context - prompt
    return Scenario(prompt=512 if prompt is None else prompt, answer=answer, batch=batch, **fixed)


# --- options ----------------------------------------------------------------------------------------------------------


def _question(model: str, options: dict[str, Any]) -> Question:
    drafted, accepted = _speculation(options["speculate"])
    fixed = {name: options[name] for name in ("prompt", "answer", "kv", "engine", "cached")}
    weights = options["weights"]
    return Question(
        model,
        tuple(_items(options["hardware"])),
        tuple(_items(weights)) if weights else (None,),
        tuple(_numbers(options["context"], "--context")) if options["context"] else (None,),
        tuple(_numbers(options["batch"], "--batch")),
        {**fixed, "drafted": drafted, "accepted": accepted},
        {"bandwidth_gb_s": options["bandwidth"], "memory_gib": options["memory"], "tflops": options["tflops"]},
        (options["offload"], options["cache_hits"]),
    )


def _items(text: str) -> list[str]:
    found = [item.strip() for item in text.split(",") if item.strip()]
    if not found:
        raise click.UsageError(f"{text!r} is an empty list")
    return found


def _numbers(text: str, option: str) -> Iterator[int]:
    """A list of whole numbers; "1..64" is 1, 2, 4 ... 64."""
    for item in _items(text):
        first, dots, last = item.partition("..")
        try:
            low, high = int(first), int(last or first)
        except ValueError:
            raise click.UsageError(f"{option}: {item!r} is neither a number nor a range like 1..64") from None
        if low < 1 or high < low:
            raise click.UsageError(f"{option}: {item!r} is not a range of numbers from 1")
        while dots and low < high:
            yield low
            low *= 2
        yield high


def _speculation(text: str | None) -> tuple[int, float]:
    if text is None:
        return 0, 0.0
    count, _, rate = text.partition(":")
    try:
        drafted, accepted = int(count), float(rate)
    except ValueError:
        drafted, accepted = 0, -1.0
    if drafted < 1 or not 0 <= accepted <= 1:
        raise click.UsageError(f"--speculate: {text!r} is not like 4:0.7")
    return drafted, accepted
