"""`twostroke bench`: how fast. Owns the command and which of its two measurements is asked for."""

from typing import Any

import click

from twostroke.bench.config import LoadTestConfig
from twostroke.cli.load_test import run_load_test
from twostroke.cli.options import options_of

_LOAD_OPTIONS = (
    "endpoint",
    "model",
    "tokenizer",
    "shape",
    "prompt_tokens",
    "output_tokens",
    "dataset",
    "shared_prefix",
    "turns",
    "concurrency",
    "rate",
    "arrivals",
    "ramp",
    "requests",
    "seconds",
    "warmup",
    "timeout",
    "slo",
    "extra",
    "plan",
    "hardware",
    "seed",
)


@click.command("bench")
@click.option("--url", required=True, help="The server, such as http://127.0.0.1:8000.")
@options_of(LoadTestConfig, _LOAD_OPTIONS)
@click.option("--ignore-eos/--no-ignore-eos", default=None, help="Full-length answers; default: unless --dataset.")
@click.option("--api-key", envvar="TWOSTROKE_API_KEY", help="Better in the environment: TWOSTROKE_API_KEY.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write a page with charts here.")
@click.option("--csv", type=click.Path(dir_okay=False), help="Write a row a request here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(url: str, html: str | None, csv: str | None, as_json: bool, **options: Any) -> None:
    """Measure an OpenAI-compatible server under load: TTFT, TPOT, throughput.

    Prompts are made up and all different. Loads of a list (--concurrency 1,4,16 or --rate 0.5,1,2) run one after
    another. A stage in which this generator was the bottleneck is marked invalid. Ctrl-C ends the run and shows what
    was gathered.
    """
    run_load_test(LoadTestConfig(url, **options), html, csv, as_json)
