"""lm-eval's `local-completions` against the server: a multiple choice of our own, the tokenizer of the model's files.

Every log-likelihood must be the Python API's to four digits. Skipped where the package is not installed
(`pip install lm-eval transformers`).
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.server.running import NAME, running
from tests.tiny import write_tiny_gguf
from tests.tiny_directory import write_tiny_directory

from twostroke import LLM

MISSING = any(importlib.util.find_spec(name) is None for name in ("lm_eval", "transformers"))
QUESTIONS = [
    {"query": "the rain in the sea", "choices": [" stone", " house on the hill", " x"], "gold": 0},
    {"query": "there are those", "choices": [" other houses", " trees", " in the rain"], "gold": 1},
    {"query": "a stone", "choices": [" is a stone", " was there", " then"], "gold": 2},
]
TASK = """\
task: ours
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
output_type: multiple_choice
test_split: test
doc_to_text: query
doc_to_target: gold
doc_to_choice: choices
target_delimiter: ""
metric_list: [{metric: acc}]
"""


@pytest.mark.large
@pytest.mark.skipif(MISSING, reason="lm-eval and transformers are not installed")
def test_the_scores_are_those_of_the_python_api(tmp_path: Path) -> None:
    """Case LGP-04."""
    model = write_tiny_directory(tmp_path / "model", write_tiny_gguf(tmp_path / "tiny.gguf", "qwen2", seed=3))
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    (tmp_path / "ours.yaml").write_text(TASK.replace("DATA", str(tmp_path / "questions.jsonl")))
    with LLM(model, threads=1) as llm, running(llm) as server:
        samples = evaluate(tmp_path, model, f"{server.url}/v1/completions")
        found = {sample["doc"]["query"]: [float(pair[0][0]) for pair in sample["resps"]] for sample in samples}
        for question in QUESTIONS:
            assert found[str(question["query"])] == pytest.approx(expected(llm, question), abs=1e-4)


def expected(llm: LLM, question: dict[str, Any]) -> list[float]:
    """The log-likelihood of each choice after the query."""
    query = llm.tokenizer.encode(question["query"])
    wholes = [llm.tokenizer.encode(question["query"] + choice) for choice in question["choices"]]
    return [sum(llm.score(whole).logprobs[len(query) - 1 :]) for whole in wholes]


def evaluate(folder: Path, model: Path, url: str) -> list[dict[str, Any]]:
    """lm-eval's record of each question."""
    arguments = f"model={NAME},base_url={url},tokenizer={model},num_concurrent=2,max_length=1024"
    options = ["--model", "local-completions", "--model_args", arguments, "--tasks", "ours", "--include_path"]
    command = [sys.executable, "-m", "lm_eval", *options, str(folder), "--output_path", str(folder), "--log_samples"]
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (written,) = folder.rglob("samples_ours_*.jsonl")
    return [json.loads(line) for line in written.read_text().splitlines()]
