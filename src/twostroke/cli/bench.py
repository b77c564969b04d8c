"""`twostroke bench`: how fast. Owns the command and which of its two measurements is asked for."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from twostroke.bench.config import LoadTestConfig
from twostroke.bench.model_config import ModelBenchConfig
from twostroke.cli.load_test import run_load_test
from twostroke.cli.model_bench import run_model_bench
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

_NEEDS = {"arrivals": "rate", "hardware": "plan"}  # options that say nothing without another
_MODEL_OPTIONS = ("gen_tokens", "batch", "depth", "repeat", "weights", "kv", "threads", "isa", "perplexity")


@click.command("bench")
@click.argument("model_in_process", metavar="[MODEL]", required=False)
@click.option("--url", help="The server, such as http://127.0.0.1:8000, instead of a MODEL.")
@options_of(ModelBenchConfig, _MODEL_OPTIONS)
@options_of(LoadTestConfig, _LOAD_OPTIONS)
@click.option("--ignore-eos/--no-ignore-eos", default=None, help="Full-length answers; default: unless --dataset.")
@click.option("--api-key", envvar="TWOSTROKE_API_KEY", help="Better in the environment: TWOSTROKE_API_KEY.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with charts here.")
@click.option("--csv", type=click.Path(path_type=Path), metavar="FILE", help="Write a row a request here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model_in_process: str | None, url: str | None, as_json: bool, **options: Any) -> None:
    """Time MODEL in this process, or any OpenAI-compatible server under load.

    bench MODEL: prefill and decode speed of each combination of --prompt-tokens, --gen-tokens, --batch, --depth,
    --weights and --kv, beside what the machine allows; medians over --repeat passes.

    bench --url URL: TTFT, TPOT and throughput of a server. Prompts are made up and all different. Loads of a list
    (--concurrency 1,4,16 or --rate 0.5,1,2) run one after another. A stage in which this generator was the bottleneck
    is marked invalid.

    Ctrl-C ends either and shows what was gathered.
    """
    if (model_in_process is None) == (url is None):
        raise click.UsageError("give a MODEL to time here, or --url of a server to load")
    context = click.get_current_context()
    given = {name for name in options if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if url is not None:
        _refuse(given & set(_MODEL_OPTIONS), "is for a MODEL, not for --url")
        for name, other in _NEEDS.items():
            _refuse({name} & given if options[other] is None else set(), f"needs --{other}")
        kept = {name: options[name] for name in (*_LOAD_OPTIONS, "ignore_eos", "api_key")}
        run_load_test(LoadTestConfig(url, **kept), options["html"], options["csv"], as_json)
        return
    _refuse(given - set(_MODEL_OPTIONS) - {"prompt_tokens"}, "is for --url, not for a MODEL")
    kept = {name: options[name] for name in _MODEL_OPTIONS}
    if options["prompt_tokens"] is not None:
        kept["prompt_tokens"] = options["prompt_tokens"]
    run_model_bench(ModelBenchConfig(str(model_in_process), **kept), as_json)


def _refuse(names: set[str], why: str) -> None:
    for name in sorted(names):
        raise click.UsageError(f"--{name.replace('_', '-')} {why}")
