"""llama.cpp as it is compared: its own llama-bench and llama-batched-bench, flash attention on. Owns their arguments
and what is read of their answers; llama_cpp_build has how they come to be.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from .command import output_of
from .question import Question


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """`binaries` has llama-bench, llama-batched-bench and llama-server. Nothing is sampled in its benchmarks."""

    binaries: Path
    threads: int
    name: str = "llama.cpp"

    def rate(self, model: Path, question: Question) -> float:
        """One repetition, after its warm-up."""
        if question.batch > 1:
            return rate_of_batch(output_of(self._batched(model, question)))
        lengths = ["-p", str(question.prompt_tokens), "-n", "0"]
        if question.gen_tokens:
            lengths = ["-p", "0", "-n", str(question.gen_tokens), "-d", str(question.prompt_tokens)]
        command = [str(self.binaries / "llama-bench"), "-m", str(model), "-t", str(self.threads), *lengths]
        return rate_of(output_of([*command, "-fa", "1", "-r", "1", "-o", "json"]))

    def _batched(self, model: Path, question: Question) -> list[str]:
        context = question.batch * (question.prompt_tokens + question.gen_tokens)
        command = [str(self.binaries / "llama-batched-bench"), "-m", str(model), "-t", str(self.threads)]
        command += ["-c", str(context), "-npp", str(question.prompt_tokens), "-ntg", str(question.gen_tokens)]
        return [*command, "-npl", str(question.batch), "-fa", "on", "--output-format", "jsonl"]

    def server(self, model: Path, port: int, slots: int, context: int) -> list[str]:
        """The command of llama-server with as many slots, each of `context` tokens. What it would save of prompts that
        never come again is off."""
        command = [str(self.binaries / "llama-server"), "-m", str(model), "-t", str(self.threads), "-fa", "on"]
        command += ["--host", "127.0.0.1", "--port", str(port), "-np", str(slots), "-c", str(slots * context)]
        return [*command, "--cache-ram", "0", "--offline", "--log-disable"]


def rate_of(answer: str) -> float:
    """Tokens a second in what `llama-bench -o json` printed of one test."""
    (test,) = json.loads(answer)
    return float(test["avg_ts"])


def rate_of_batch(answer: str) -> float:
    """Generated tokens a second, all sequences together, in what llama-batched-bench printed; it logs in between."""
    (line,) = [line for line in answer.splitlines() if line.startswith("{")]
    return float(json.loads(line)["speed_tg"])
