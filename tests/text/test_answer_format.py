"""Formats that published chat templates tell of themselves."""

import json
from pathlib import Path

import pytest

from twostroke.text.answer_format import AnswerFormat

TEMPLATES = json.loads((Path(__file__).parents[1] / "golden" / "chat_templates.json").read_text("utf-8"))["templates"]


@pytest.mark.parametrize(
    ("name", "tools", "reasoning", "shows_tools"),
    [
        ("smollm2", "generic", None, False),
        ("qwen2.5", "hermes", None, True),
        ("qwen3", "hermes", "<think>", True),
        ("qwen3-coder", "qwen3-coder", None, True),
        ("qwen3.5", "qwen3-coder", "<think>", True),
        ("qwq", "hermes", "<think>", True),
        ("deepseek-r1-distill", "deepseek", "<think>", False),
        ("deepseek-v3.1", "deepseek-v3.1", "<think>", False),
        ("glm-4.6", "glm", "<think>", True),
        ("gpt-oss", "harmony", None, True),
        ("granite-3.3", "granite", "<think>", True),
        ("granite-4.0", "hermes", None, True),
        ("mistral-nemo", "mistral", None, True),
        ("mistral-small-3.2", "mistral-args", None, True),
        ("llama3-tools", "llama3", None, True),
        ("phi-4", "generic", None, False),
    ],
)
def test_what_a_template_tells(name: str, tools: str, reasoning: str | None, shows_tools: bool) -> None:
    source = TEMPLATES[name]["source"]
    form = AnswerFormat.of(source if isinstance(source, str) else "\n".join(source.values()))
    assert form.tools.name == tools
    assert (form.reasoning.opening if form.reasoning else None) == reasoning
    assert form.shows_tools == shows_tools
