"""Stories of other kinds of model: windows, experts, biases, untied heads. Parts add up to what the ledger recorded."""

from pathlib import Path

import pytest
from tests.explain.conftest import running
from tests.tiny_families import write_tiny_family

from twostroke.explain.page import page_of
from twostroke.explain.run import story_of


@pytest.mark.parametrize("family", ["gpt-oss", "gemma2", "qwen3moe", "gptneox"])
def test_parts_add_up(family: str, tmp_path: Path) -> None:
    with running(write_tiny_family(tmp_path / "tiny.gguf", family)) as run:
        story = story_of(run)
    assert story.prefill is not None
    for stroke in (story.prefill, story.decode):
        for parts in (stroke.by_kind, stroke.by_layer):
            for name in ("flops", "weight_bytes", "kv_bytes", "activation_bytes"):
                found = sum(getattr(part, name) for part in parts)
                assert found == pytest.approx(getattr(stroke, name), rel=1e-12), name
    page = page_of(story)
    assert ("experts a step reads" in page) == (story.model.experts > 0) == (family in ("gpt-oss", "qwen3moe"))
