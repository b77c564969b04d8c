"""How long from the start of `twostroke run` to its first token, with everything in the cache?

    python benchmarks/startup.py [MODEL] [--runs N]

Prints the parts as the run's own process sees them, then what a reader waits for, best of N processes; the last
line is JSON, in seconds.
"""

import argparse
import json
import subprocess
import sys
import time

PARTS = """
from time import perf_counter as now
start = now()
import twostroke.cli.main; twostroke.cli.main.collect_rarely()
import twostroke.cli.run, twostroke.llm.llm, twostroke.cli.answer, twostroke.cli.roofs
imported = now()
llm = twostroke.llm.llm.LLM({model!r}, max_batch=1)
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
    code = "from twostroke.cli.main import main; main()"
    command = [sys.executable, "-c", code, "run", model, "hi", "--no-probe", "--no-summary", "--max-tokens", "4"]
    started = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        if process.stdout is None or not process.stdout.read(1):
            raise SystemExit("the command gave no answer")
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    best = min((parts(options.model) for _ in range(options.runs)), key=sum)
    figures = dict(zip(NAMES, best, strict=True))
    figures["first_byte_s"] = min(first_byte(options.model) for _ in range(options.runs))
    for name, seconds in figures.items():
        sys.stdout.write(f"{name:14} {1e3 * seconds:6.0f} ms\n")
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
