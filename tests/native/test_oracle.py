"""The native executor against an independent float32 forward pass over the same dequantised weights.

Greedy tokens as the engine would generate them, up to the first whose margin is under 0.05, where a path with 16-bit
activations may choose the other; log-probabilities; perplexity of a passage in both phases.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.native.in_memory import ROUNDING, chunk, run

from twostroke.models.load import load_model
from twostroke.native.batch import Sampling
from twostroke.native.executor import ExecutorConfig, NativeExecutor, available_isas
from twostroke.program.phase import Phase

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = {"smollm2": "smollm2-135m-instruct-q4_1.json", "qwen": "qwen2.5-coder-1.5b-instruct-q4_k_m.json"}
NUM_CASES = 16  # 12 prompts, 4 chats
FREE_MARGIN = 0.05
LOG_PROBABILITY_TOLERANCE = 0.02
ROUNDED_TOLERANCE = 0.1  # where prompt rows are multiplied in bfloat16
PERPLEXITY_TOLERANCE = 0.003


@dataclass(frozen=True)
class Subject:
    """A model on one instruction set, and what it has to say."""

    executor: NativeExecutor
    golden: dict[str, Any]

    @property
    def cases(self) -> list[dict[str, Any]]:
        cases: list[dict[str, Any]] = self.golden["prompts"] + self.golden["chats"]
        return cases

    def check_case(self, index: int) -> None:
        """Top-5 log-probabilities after the prompt; then each greedy token, given those before it."""
        case = self.cases[index]
        sampling = Sampling(num_logprobs=20)
        result, _ = run(self.executor, chunk(case["ids"], phase=Phase.PREFILL, num_outputs=1, sampling=sampling))
        found = dict(zip(result.top_ids[0].tolist(), result.top_logprobs[0].tolist(), strict=True))
        for token, logprob in case["top5"]:
            near = ROUNDED_TOLERANCE if self.executor.isa in ROUNDING else LOG_PROBABILITY_TOLERANCE
            assert found[token] == pytest.approx(logprob, abs=near)
        sure = sum(1 for _ in takewhile(lambda margin: margin >= FREE_MARGIN, case["margins"]))
        token, generated = int(result.token_ids[0]), []
        for position in range(len(case["ids"]), len(case["ids"]) + sure):
            generated.append(token)
            row = chunk([token], start=position, phase=Phase.DECODE)
            token = int(run(self.executor, row)[0].token_ids[0])
        assert generated == case["greedy"][:sure]

    def check_passage(self, phase: Phase, chunk_tokens: int) -> None:
        passage = self.golden["passage"]
        nll = -np.concatenate(list(self.scores(passage["ids"], phase, chunk_tokens)))
        assert np.exp(nll.mean()) == pytest.approx(passage["perplexity"], rel=PERPLEXITY_TOLERANCE)
        assert np.abs(nll - passage["nll"]).mean() < LOG_PROBABILITY_TOLERANCE

    def scores(self, ids: list[int], phase: Phase, chunk_tokens: int) -> Iterator[np.ndarray]:
        """Log-probability of every token but the first."""
        sampling = Sampling(num_logprobs=0)
        for start in range(0, len(ids) - 1, chunk_tokens):
            end = min(start + chunk_tokens, len(ids) - 1)
            targets = np.array(ids[start + 1 : end + 1], np.int32)
            rows = chunk(ids[start:end], start=start, phase=phase, targets=targets, sampling=sampling)
            yield run(self.executor, rows)[0].logprobs


def subject(name: str, path: Path, isa: str) -> Subject:
    model = load_model(path)
    executor = NativeExecutor(model.program, model.source, ExecutorConfig(2, (40,), 640, isa=isa))
    executor.poison()
    golden: dict[str, Any] = json.loads((GOLDEN / FILES[name]).read_text(encoding="utf-8"))
    made = Subject(executor, golden)
    assert len(made.cases) == NUM_CASES
    return made


@pytest.fixture(scope="module", params=available_isas())
def smollm2(request: pytest.FixtureRequest, smollm2_path: Path) -> Subject:
    return subject("smollm2", smollm2_path, request.param)


@pytest.fixture(scope="module")
def qwen(qwen_path: Path) -> Subject:
    return subject("qwen", qwen_path, available_isas()[-1])


def test_smollm2(smollm2: Subject) -> None:
    """Everything on the best instruction set; on the others a prompt, and all in the large tests."""
    best = smollm2.executor.isa == available_isas()[-1]
    for index in range(NUM_CASES) if best else (0,):
        smollm2.check_case(index)
    for phase in Phase if best else ():
        smollm2.check_passage(phase, 512 if phase is Phase.PREFILL else 1)


@pytest.mark.large
def test_smollm2_all(smollm2: Subject) -> None:
    """Everything on every instruction set."""
    for index in range(NUM_CASES):
        smollm2.check_case(index)
    smollm2.check_passage(Phase.PREFILL, 512)


@pytest.mark.large
@pytest.mark.parametrize("index", range(NUM_CASES))
def test_qwen(qwen: Subject, index: int) -> None:
    qwen.check_case(index)


@pytest.mark.large
@pytest.mark.parametrize("phase", Phase)
def test_qwen_passage(qwen: Subject, phase: Phase) -> None:
    qwen.check_passage(phase, 512 if phase is Phase.PREFILL else 1)
