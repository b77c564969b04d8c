"""Does `bench --url` measure what another load generator measures, on the same server under the same load?

    python benchmarks/load_generators.py --url http://127.0.0.1:8080 --guidellm PATH [--tokenizer smollm2]

The other one is GuideLLM, installed in an environment of its own; PATH is its command. Both send completions of the
same lengths, ROUNDS times, one going first and then the other (A B B A ...), as the server's own speed drifts. Compared
are medians of the rounds' medians, and the rounds: the median of their ratios, with the least and the most. What
GuideLLM calls inter-token latency is TPOT here, (last - first) / (tokens - 1); its own TPOT counts the first token too.
A generator also changes what it measures, by the text it asks for and by the CPU it takes: where the server is ours,
each one's means are set beside the server's own of the same requests, from /metrics. Start it with `--no-speculation`:
drafts follow the text, which the two choose differently. The last line is JSON, in seconds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click

from twostroke.weights.fetch import resolve
from twostroke.weights.gguf import GGUFFile

MAIN = "from twostroke.cli.main import main; main()"
SERVERS_OWN = {"ttft": "twostroke_time_to_first_token_seconds", "tpot": "twostroke_time_per_output_token_seconds"}
PARTS = ("sum", "count")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


@dataclass(frozen=True)
class Load:
    url: str
    model: str
    tokenizer: str
    streams: int
    requests: int
    prompt_tokens: int
    output_tokens: int


def ours(load: Load) -> dict[str, float]:
    command = [sys.executable, "-c", MAIN, "bench", "--url", load.url, "--json", "--endpoint", "completions"]
    command += ["--concurrency", str(load.streams), "--requests", str(load.requests), "--tokenizer", load.tokenizer]
    command += ["--warmup", "0"]
    command += ["--prompt-tokens", str(load.prompt_tokens), "--output-tokens", str(load.output_tokens)]
    done = subprocess.run([*command, "--model", load.model], capture_output=True, text=True, check=True)
    (stage,) = json.loads(done.stdout)["stages"]
    return {
        "ttft": stage["ttft_s"]["p50"],
        "tpot": stage["tpot_s"]["p50"],
        "ttft_mean": stage["ttft_s"]["mean"],
        "tpot_mean": stage["tpot_s"]["mean"],
        "requests": stage["requests"]["succeeded"],
        "prompt_tokens": stage["prompt_tokens"]["a_request"]["mean"],
        "output_tokens": stage["output_tokens"]["a_request"]["mean"],
        "lag_p99": stage["generator"]["read_lag_s"]["p99"],
    }


def guidellm(command: str, load: Load, folder: Path, seed: int) -> dict[str, float]:
    """Its report's medians of requests that succeeded. Its prompts depend on the seed alone: the same ones again would
    be in a prefix cache."""
    report = folder / "report.json"
    backend = f"kind=openai_http,target={load.url},request_format=/v1/completions,model={load.model}"
    arguments = ["run", "--backend", f"{backend},validate_backend=false", "--output", f"kind=json,path={report}"]
    arguments += ["--profile", f"kind=concurrent,streams={load.streams}"]
    arguments += ["--constraint", f"kind=max_requests,count={load.requests}"]
    arguments += ["--tokenizer", f"kind=huggingface_auto,model={folder}", "--disable-console"]
    lengths = f"prompt_tokens={load.prompt_tokens},output_tokens={load.output_tokens}"
    arguments += ["--seed", f"kind=static,value={seed}"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    arguments += ["--data", f"kind=synthetic_text,{lengths}"]
    subprocess.run([command, *arguments], capture_output=True, check=True, env=environment)
    metrics: Mapping[str, Any] = json.loads(report.read_text("utf-8"))["benchmarks"][0]["metrics"]
    outcomes = metrics["request_totals"]
    if outcomes["errored"] or outcomes["successful"] < 0.9 * load.requests:
        raise SystemExit(f"guidellm: requests by outcome were {outcomes}")
    return {
        "ttft": metrics["time_to_first_token_ms"]["successful"]["median"] / 1e3,
        "tpot": metrics["inter_token_latency_ms"]["successful"]["median"] / 1e3,
        "ttft_mean": metrics["time_to_first_token_ms"]["successful"]["mean"] / 1e3,
        "tpot_mean": metrics["inter_token_latency_ms"]["successful"]["mean"] / 1e3,
        "requests": outcomes["successful"],
        "prompt_tokens": metrics["prompt_token_count"]["successful"]["mean"],
        "output_tokens": metrics["output_token_count"]["successful"]["mean"],
    }


def write_tokenizer(model: str, folder: Path) -> None:
    """A tokenizer folder that GuideLLM can read, from a GGUF file with byte-level BPE."""
    with GGUFFile.open(resolve(model)) as file:
        tokens = {token: index for index, token in enumerate(file.metadata["tokenizer.ggml.tokens"])}
        merges = [merge.split(" ") for merge in file.metadata["tokenizer.ggml.merges"]]
    bpe = {"type": "BPE", "vocab": tokens, "merges": merges}
    whole = {"version": "1.0", "added_tokens": [], "pre_tokenizer": BYTE_LEVEL, "decoder": BYTE_LEVEL, "model": bpe}
    (folder / "tokenizer.json").write_text(json.dumps(whole), "utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}', "utf-8")


def sums_of(url: str) -> dict[str, float]:
    """The server's own sums and counts so far; empty where it keeps none under these names."""
    try:
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            lines = [line.split() for line in answer.read().decode().splitlines()]
    except urllib.error.HTTPError:
        return {}
    wanted = {f"{name}_{part}" for name in SERVERS_OWN.values() for part in PARTS}
    return {line[0]: float(line[1]) for line in lines if line[0] in wanted}


def beside_the_server(measure: Callable[[], dict[str, float]], url: str) -> dict[str, float]:
    """What `measure` finds, and its means as parts of the server's own of the same requests."""
    before = sums_of(url)
    found, after = measure(), sums_of(url)
    for metric, name in SERVERS_OWN.items():
        total, count = (after.get(f"{name}_{part}", 0.0) - before.get(f"{name}_{part}", 0.0) for part in PARTS)
        if count:
            # `bench` tries the server's fields out by a request of two tokens. It adds to the count, to TTFT's sum next
            # to nothing, and to TPOT's less than the others do: of 12 requests ours then seem 1.05 of the server's.
            own = total / (found["requests"] if metric == "ttft" else count)
            found[f"{metric}_of_server"] = found[f"{metric}_mean"] / own
    return found


def compare(command: str, load: Load, rounds: int) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = {"twostroke": [], "guidellm": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tokenizer(load.tokenizer, folder)
        for number in range(rounds):
            theirs = partial(guidellm, command, load, folder, time.time_ns() % 2**31)
            turns = [("twostroke", partial(ours, load)), ("guidellm", theirs)]
            for who, measure in turns[:: -1 if number % 2 else 1]:
                found[who].append(beside_the_server(measure, load.url))
                click.echo(f"{number} {who} " + str({key: round(value, 5) for key, value in found[who][-1].items()}))
    medians = {
        who: {metric: median(result[metric] for result in results) for metric in SERVERS_OWN}
        for who, results in found.items()
    }
    pairs = list(zip(found["twostroke"], found["guidellm"], strict=True))
    paired = {metric: [own[metric] / other[metric] for own, other in pairs] for metric in SERVERS_OWN}
    ratios = {metric: medians["twostroke"][metric] / medians["guidellm"][metric] for metric in SERVERS_OWN}
    return {"rounds": found, "medians_s": medians, "ratios": ratios, "paired_ratios": paired}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--guidellm", required=True)
    parser.add_argument("--model", default="smollm2", help="the model's name in requests")
    parser.add_argument(
        "--tokenizer", default="smollm2", help="whose tokenizer counts prompts: an alias or a GGUF file"
    )
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--requests", type=int, default=12)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=4)
    options = vars(parser.parse_args())
    command, rounds = options.pop("guidellm"), options.pop("rounds")
    found = compare(command, Load(**options), rounds)
    for metric, ratio in found["ratios"].items():
        values = "   ".join(f"{who} {medians[metric] * 1e3:.2f} ms" for who, medians in found["medians_s"].items())
        paired = found["paired_ratios"][metric]
        within = f"of rounds {median(paired):.3f} ({min(paired):.3f} to {max(paired):.3f})"
        click.echo(f"{metric}   {values}   ratio {ratio:.3f}, {within}")
        for who, results in found["rounds"].items():
            if parts := [result[f"{metric}_of_server"] for result in results if f"{metric}_of_server" in result]:
                click.echo(f"       {who}'s mean is {median(parts):.3f} of the server's own for the same requests")
    click.echo(json.dumps(found))


if __name__ == "__main__":
    main()
