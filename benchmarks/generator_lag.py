"""How late is `bench --url` itself, and how far are its figures from the truth, with 200 streams at a time?

    python benchmarks/generator_lag.py [--streams 200] [--requests 800] [--gap 0.05]

A scripted server in a process of its own keeps the times at which it read requests and wrote chunks; the clock is one
for both processes. Prints both sides; the last line is JSON, in seconds.
"""

import argparse
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any

import click

from twostroke.bench.config import LoadTestConfig
from twostroke.bench.load_test import load_test

SERVER = Path(__file__).parents[1] / "tests/bench/mock_server.py"


def measure(url: str, streams: int, requests: int, script: dict[str, Any]) -> dict[str, Any]:
    """Medians as measured and as the server knows them, and the generator's lag."""
    config = LoadTestConfig(
        url,
        concurrency=str(streams),
        requests=requests,
        warmup=0,
        ramp=1.0,
        output_tokens=str(script["chunks"]),
        extra=json.dumps({"script": script}),
    )
    test = load_test(config, lambda live: None, lambda figures, expected: None)
    (figures,) = test.stages
    with urllib.request.urlopen(f"{url}/log") as answer:
        entries = [entry for entry in json.load(answer) if entry["read"] >= test.origin + config.ramp]
    steps = script["chunks"] - 1
    measured = {"ttft": figures.ttft.p50, "tpot": figures.tpot.p50, "e2e": figures.e2e.p50}
    truth = {
        "ttft": median(entry["writes"][0] - entry["read"] for entry in entries),
        "tpot": median((entry["writes"][-1] - entry["writes"][0]) / steps for entry in entries),
        "e2e": median(entry["writes"][-1] - entry["read"] for entry in entries),
    }
    lag = figures.run.lag
    return {
        "requests": figures.num_ok,
        "deltas_per_second": figures.output_tokens_per_second,
        "measured_p50_s": measured,
        "truth_p50_s": truth,
        "lag_s": {"p50": lag.p50, "p99": lag.p99, "max": lag.max},
        "cpu_share": lag.cpu_share,
        "faults": figures.faults,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--requests", type=int, default=800)
    parser.add_argument("--gap", type=float, default=0.05, help="seconds between the chunks of a stream")
    options = parser.parse_args()
    script = {"first": 0.3, "gap": options.gap, "chunks": 40}
    with subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True) as server:
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        try:
            found = measure(url, options.streams, options.requests, script)
        finally:
            server.terminate()
    click.echo(
        f"{options.streams} streams, {found['deltas_per_second']:,.0f} deltas/s, {found['cpu_share']:.0%} of a core"
    )
    for name, value in found["measured_p50_s"].items():
        truth = found["truth_p50_s"][name]
        click.echo(f"{name}   measured {value * 1e3:8.3f} ms   truth {truth * 1e3:8.3f} ms   {value / truth - 1:+.2%}")
    lag = {name: f"{value * 1e3:.2f} ms" for name, value in found["lag_s"].items()}
    click.echo(f"lag    p50 {lag['p50']}   p99 {lag['p99']}   max {lag['max']}")
    click.echo(json.dumps(found))


if __name__ == "__main__":
    main()
