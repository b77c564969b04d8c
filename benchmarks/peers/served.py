"""Servers under the same load, in turn. Owns their processes and what is read of a load test."""

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from .command import output_of
from .own import COMMAND
from .turns import Range

_START_S = 120


@dataclass(frozen=True, slots=True)
class Load:
    """Closed loop: `clients` at a time, each with a new prompt, `requests` of them a round."""

    clients: int
    requests: int
    prompt_tokens: int
    output_tokens: int

    def command(self, url: str, model: Path) -> list[str]:
        """`bench --url`, which counts prompts with the model's own tokenizer."""
        words = [*COMMAND, "bench", "--url", url, "--json", "--endpoint", "completions", "--tokenizer", str(model)]
        words += ["--concurrency", str(self.clients), "--requests", str(self.requests), "--warmup", "2"]
        return [*words, "--prompt-tokens", str(self.prompt_tokens), "--output-tokens", str(self.output_tokens)]


@dataclass(frozen=True, slots=True)
class Served:
    """What one server gave in one round. TTFT and TPOT in seconds, medians of its requests."""

    output_tok_s: float
    ttft_p50_s: float
    tpot_p50_s: float

    @classmethod
    def read(cls, answer: str, load: Load) -> "Served":
        """Of what `bench --url --json` printed. Raises ClickException where requests failed or answers were short."""
        (stage,) = json.loads(answer)["stages"]
        whole, expected = stage["requests"]["succeeded"], stage["requests"]["measured"]
        short = stage["output_tokens"]["a_request"]["mean"] < 0.98 * load.output_tokens if whole else True
        if whole != expected or short:
            raise click.ClickException(
                f"requests failed or were answered short: {stage['requests']}, {stage['faults']}"
            )
        return cls(stage["output_tokens_per_second"], stage["ttft_s"]["p50"], stage["tpot_s"]["p50"])


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def running(command: Sequence[str], url: str) -> Iterator[subprocess.Popen[bytes]]:
    """The server, from when it answers /health until the end. Raises ClickException where it does not come up."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + _START_S
            while not _is_up(url):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise click.ClickException(f"{' '.join(command)}: the server did not come up")
                time.sleep(0.2)
            yield server
        finally:
            server.terminate()


def _is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


def serve_in_turn(
    urls: Mapping[str, str], model: Path, load: Load, rounds: int, tell: Callable[[str, Served], None]
) -> dict[str, list[Served]]:
    """Each server under the load, one after another, as many times; the others idle meanwhile."""
    found: dict[str, list[Served]] = {name: [] for name in urls}
    for _ in range(rounds):
        for name, url in urls.items():
            found[name].append(Served.read(output_of(load.command(url, model)), load))
            tell(name, found[name][-1])
    return found


def compared(found: Mapping[str, Sequence[Served]]) -> dict[str, dict[str, Range]]:
    """The first server to each of the others, round by round: ratios of output tokens a second and of TTFT p50."""
    (_, own), *others = found.items()
    return {
        name: {
            "output_tok_s": Range.of([a.output_tok_s / b.output_tok_s for a, b in zip(own, theirs, strict=True)]),
            "ttft_p50": Range.of([a.ttft_p50_s / b.ttft_p50_s for a, b in zip(own, theirs, strict=True)]),
        }
        for name, theirs in others
    }


def fields(found: Mapping[str, Sequence[Served]]) -> dict[str, Any]:
    """All rounds and the ratios, for JSON."""
    ratios = {name: {what: asdict(r) for what, r in of.items()} for name, of in compared(found).items()}
    return {"rounds": {name: [asdict(one) for one in rounds] for name, rounds in found.items()}, "ratios": ratios}
