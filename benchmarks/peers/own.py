"""Twostroke as it is compared: `bench MODEL` in a process of its own. Owns its arguments and how its answer is read."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from .command import output_of
from .question import Question

COMMAND = (sys.executable, "-c", "from twostroke.cli.main import main; main()")


@dataclass(frozen=True, slots=True)
class Twostroke:
    """One pass a measurement, after one that is not counted. Sampling and the engine's own Python are in its time."""

    threads: int
    isa: str | None = None
    name: str = "twostroke"

    def rate(self, model: Path, question: Question) -> float:
        lengths = ["--prompt-tokens", str(question.prompt_tokens), "--gen-tokens", str(question.gen_tokens)]
        command = [*COMMAND, "bench", str(model), "--json", "--repeat", "1", "--threads", str(self.threads), *lengths]
        command += ["--batch", str(question.batch)] + (["--isa", self.isa] if self.isa else [])
        return rate_of(output_of(command), question)


def rate_of(answer: str, question: Question) -> float:
    """Tokens a second in what `bench MODEL --json` printed."""
    (cell,) = json.loads(answer)["cells"]
    return float(cell["decode_tok_s" if question.gen_tokens else "prefill_tok_s"])
