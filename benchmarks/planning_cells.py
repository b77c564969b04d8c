"""How near is a plan to what this engine does here?

    python benchmarks/planning_cells.py FILE [--budget SECONDS] [--rounds N] [--show]

Runs `twostroke plan MODEL --hardware this --check` for each model, batch and prompt below, the cells with fewest runs
first, keeps each result in FILE (JSON lines) and stops before the budget ends. Memory that others share may be twice
as fast a minute later, and a plan from a probe of then is off for no fault of the plan: a run counts where the probes
right before and right after it agree within 5% on reading the model's weights, and where other processes, and the host,
took under 5% of the cores. All others are shown too, and why they do not count.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

CELLS = [
    (model, batch, prompt) for prompt, model, batch in product((128, 2048), ("smollm2", "qwen2.5-coder-1.5b"), (1, 8))
]  # tokens of each of so many prompts
_ANSWER, _STEADY, _OTHERS = 64, 1.05, 0.05
_SLOWEST_S = dict(zip(CELLS, (15, 25, 25, 70, 30, 90, 85, 160), strict=True))
_NAMES = ("prefill_s", "tpot_s", "memory_bytes")
Run = dict[str, Any]


def run(cell: tuple[str, int, int]) -> Run:
    """One check of a cell."""
    model, batch, prompt = cell
    code = "from twostroke.cli.main import main; main()"
    scenario = ("--batch", str(batch), "--prompt", str(prompt), "--answer", str(_ANSWER))
    command = [sys.executable, "-c", code, "plan", model, "--hardware", "this", *scenario, "--check", "--json"]
    since, others = time.monotonic(), _others_s()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    share = (_others_s() - others) / (time.monotonic() - since) / (os.cpu_count() or 1)
    found: Run = json.loads(done.stdout.splitlines()[-1])
    return {**found, "cell": list(cell), "others": share}


def _others_s() -> float:
    """Seconds of processor time that went to anything but the processes started here, what the host took among them."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK") - own.ru_utime - own.ru_stime


def why_not(found: Run) -> str:
    """Why a run does not count; empty where it does."""
    before, after = found["read_byte_s"]["probed"], found["read_byte_s"]["after"]
    if found["others"] > _OTHERS:
        return f"others took {found['others']:.0%} of the cores"
    return "" if max(before, after) <= _STEADY * min(before, after) else "memory changed"


def show(runs: list[Run]) -> None:
    """Medians of predicted over measured of each cell's steady runs, then every run."""
    print("| model | batch, prompt | runs that count | prefill | a token | memory |\n|---|---|--:|--:|--:|--:|")  # noqa: T201
    for cell in CELLS:
        own = [one for one in runs if tuple(one["cell"]) == cell]
        steady = [one for one in own if not why_not(one)]
        ratios = [f"{median(one['check'][name]['ratio'] for one in steady):.2f}" if steady else "" for name in _NAMES]
        model, batch, prompt = cell
        print(f"| {model} | {batch}, {prompt:,} | {len(steady)} of {len(own)} | {' | '.join(ratios)} |")  # noqa: T201
    for one in runs:
        rates = " ".join(f"{rate / 1e9:5.1f}" for rate in one["read_byte_s"].values())
        ratios = [" ".join(f"{one['check'][name][key]:5.2f}" for name in _NAMES) for key in ("ratio", "ratio_then")]
        print(f"{one['cell']!s:36} GB/s {rates}   {ratios[0]}   at that rate {ratios[1]}   {why_not(one)}")  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each cell that are steady, or twice as many")
    parser.add_argument("--show", action="store_true", help="run nothing")
    options = parser.parse_args()
    lines = options.file.read_text("utf-8").splitlines() if options.file.exists() else []
    runs: list[Run] = [json.loads(line) for line in lines]
    end = time.monotonic() + (0.0 if options.show else options.budget)
    while wanted := _wanted(runs, options.rounds, end - time.monotonic()):
        runs.append(run(wanted))
        with options.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(runs[-1]) + "\n")
    show(runs)


def _wanted(runs: list[Run], rounds: int, seconds: float) -> tuple[str, int, int] | None:
    """The cell with the fewest runs, of those that need more and end in time."""
    counts = {cell: [not why_not(one) for one in runs if tuple(one["cell"]) == cell] for cell in CELLS}
    open_ = [
        cell
        for cell, found in counts.items()
        if sum(found) < rounds and len(found) < 2 * rounds and _SLOWEST_S[cell] < seconds
    ]
    return min(open_, key=lambda cell: len(counts[cell]), default=None)


if __name__ == "__main__":
    main()
