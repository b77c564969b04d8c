"""How long from the start of `twostroke run` to its first token, with everything in the cache?

    python benchmarks/startup.py [MODEL] [--runs N] [--llama-cpp DIR]

Prints the parts as the run's own process sees them, then what a reader waits for, best of N processes. With the folder
of llama.cpp's binaries, the whole process that answers "hi" with one token, ours and llama-cli, N times in turn. The
last line is JSON, in seconds.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from twostroke.weights.fetch import ensure

RUN = [sys.executable, "-c", "from twostroke.cli.main import main; main()", "run", "--no-probe", "--no-summary"]
PARTS = """
from time import perf_counter as now
start = now()
import twostroke.cli.main; twostroke.cli.main.collect_rarely()
import twostroke.cli.run, twostroke.cli.loading, twostroke.cli.answer
imported = now()
llm = twostroke.cli.loading.load({model!r}, max_batch=1)
loaded = now()
prompt = llm.render([{{"role": "user", "content": "hi"}}])
rendered = now()
llm.generate(prompt.ids, stream=True).advance()
print(imported - start, loaded - imported, rendered - loaded, now() - rendered)
"""
NAMES = ("imports_s", "load_s", "render_s", "first_token_s")


def parts(model: str) -> list[float]:
    """Seconds of each of NAMES in one process."""
    done = subprocess.run([sys.executable, "-c", PARTS.format(model=model)], capture_output=True, text=True, check=True)
    return [float(part) for part in done.stdout.split()]


def first_byte(model: str) -> float:
    """Seconds from starting the command to the first byte of its answer."""
    started = time.perf_counter()
    command = [*RUN, "--max-tokens", "4", model, "hi"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        if process.stdout is None or not process.stdout.read(1):
            raise SystemExit("the command gave no answer")
        return time.perf_counter() - started


def whole(command: list[str]) -> float:
    """Seconds from starting a command to its end."""
    started = time.perf_counter()
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def in_turn(model: str, llama_cpp: Path, runs: int) -> dict[str, list[float]]:
    """Seconds of each process that answers with one token, after one that is not counted."""
    path = str(ensure(model, progress=lambda *_: None))
    theirs = [str(llama_cpp / "llama-cli"), "-m", path, "-p", "hi", "-n", "1", "-st", "--simple-io", "--no-warmup"]
    commands = {"twostroke": [*RUN, "--max-tokens", "1", model, "hi"], "llama-cli": theirs}
    rounds = [{name: whole(command) for name, command in commands.items()} for _ in range(runs + 1)]
    return {name: [one[name] for one in rounds[1:]] for name in commands}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--llama-cpp", type=Path)
    options = parser.parse_args()
    best = min((parts(options.model) for _ in range(options.runs)), key=sum)
    figures = dict(zip(NAMES, best, strict=True))
    figures["first_byte_s"] = min(first_byte(options.model) for _ in range(options.runs))
    for name, seconds in figures.items():
        sys.stdout.write(f"{name:14} {1e3 * seconds:6.0f} ms\n")
    turns = in_turn(options.model, options.llama_cpp, options.runs) if options.llama_cpp else {}
    for name, taken in turns.items():
        low, middle, high = (1e3 * pick(taken) for pick in (min, median, max))
        sys.stdout.write(f"{name:14} {middle:6.0f} ms   {low:.0f}-{high:.0f}   the whole process, one token\n")
    sys.stdout.write(json.dumps(figures | turns) + "\n")


if __name__ == "__main__":
    main()
