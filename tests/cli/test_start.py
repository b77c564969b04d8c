"""What `run` has imported when its first token comes. A list and not a time: it says on any machine what start-up pays
for, and fails where a module that most runs do without comes back.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.tiny import write_tiny_gguf

# Prints the modules that are there once the first piece of the answer is.
FIRST_PIECE = """
import json, os, sys
import twostroke.cli.answer as answer
def first_piece(generation):
    with generation:
        generation.advance()
    print(json.dumps(sorted(sys.modules)), flush=True)
    os._exit(0)
answer.show_answer = first_piece
from twostroke.cli.main import main
main()
"""
OTHER_FAMILIES = ("deepseek", "gemma", "gemma4", "glm", "gpt_oss", "llama4", "olmo", "qwen", "qwen_next")
NOT_NEEDED = (
    *(f"twostroke.models.{name}" for name in (*OTHER_FAMILIES, "hf_config", "hf_families", "hf_family", "hf_names")),
    *(f"twostroke.weights.{name}" for name in ("dequantize", "grouped_blocks", "super_blocks", "checkpoint")),
    *("twostroke.cli.summary", "twostroke.cli.roofs", "twostroke.roofline.probe", "twostroke.roofline.planner"),
    *("twostroke.weights.transfer", "twostroke.weights.progress", "twostroke.program.reference"),
    *("jinja2", "rich", "pydantic", "safetensors", "huggingface_hub", "shutil", "secrets", "numpy.random"),
)
MOST_OWN_MODULES = 140


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    model = write_tiny_gguf(tmp_path_factory.mktemp("start") / "tiny.gguf")
    command = [sys.executable, "-c", FIRST_PIECE, "run", str(model), "the rain", "--threads", "1"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def test_only_what_the_model_asks_for_is_imported(modules: Sequence[str]) -> None:
    assert {"twostroke.models.llama", "twostroke.native.lower"} <= set(modules)
    assert not set(NOT_NEEDED).intersection(modules)


def test_names_that_are_not_needed_are_modules() -> None:
    """Else the test above could not fail."""
    source = Path(__file__).parents[2] / "src"
    own = [name for name in NOT_NEEDED if name.startswith("twostroke.")]
    assert not [name for name in own if not (source / Path(*name.split("."))).with_suffix(".py").exists()]


def test_few_modules_are_imported(modules: Sequence[str]) -> None:
    own = [name for name in modules if name.startswith("twostroke")]
    assert len(own) <= MOST_OWN_MODULES
