"""`twostroke fit`: which models of the catalogue run on hardware, best first. Owns the command."""

import json
from typing import Any

import click


@click.command("fit")
@click.option("--hardware", default="this", help="Catalogue name, `this`, or a TOML file.")
@click.option("--context", type=int, default=4096, show_default=True, help="Tokens of prompt and answer.")
@click.option("--batch", type=int, default=1, show_default=True, help="Requests at once.")
@click.option("--kv", default="f16", show_default=True, help="Type of the KV cache.")
@click.option("--min-tok-s", type=float, default=0.0, help="Leave out models and widths that are slower.")
@click.option("--engine", help="Engine whose efficiency to assume.")
@click.option("--memory", type=float, help="GiB instead of what the hardware has.")
@click.option("--limit", type=int, default=20, show_default=True, help="Models to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(hardware: str, memory: float | None, min_tok_s: float, limit: int, as_json: bool, **options: Any) -> None:
    """List the models that fit on hardware, with the widest weights that do, their predicted speed and what is left.

    Best first is by parameters: of a mixture of experts the geometric mean of all and active ones counts. Of one model
    the widest format that fits and is fast enough is shown.
    """
    from twostroke.cli.plan_report import fit_lines
    from twostroke.roofline.fit import find_fitting
    from twostroke.roofline.plan_fields import plan_fields
    from twostroke.roofline.planner import Scenario
    from twostroke.roofline.target import find_target, with_memory

    target = find_target(hardware)
    if memory is not None:
        target = with_memory(target, int(memory * 2**30))
    context, answer = options["context"], min(256, max(1, options["context"] // 2))
    scenario = Scenario(context - answer, answer, options["batch"], options["kv"], options["engine"])
    found = find_fitting(target, scenario, min_tok_s=min_tok_s)
    if as_json:
        models = [
            {**plan_fields(each.plan), "quality": each.quality, "headroom_bytes": round(each.headroom_bytes)}
            for each in found
        ]
        click.echo(json.dumps({"hardware": target.name, "context": context, "models": models}))
        return
    if not found:
        click.echo(f"no model of the catalogue fits on {target.name} with {context:,} tokens of context")
        return
    for line in fit_lines(found, limit):
        click.echo(line)
