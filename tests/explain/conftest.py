"""Runs of tiny models, with roofs that are given. Owns test plumbing only."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.tiny import write_tiny_gguf

from twostroke import LLM
from twostroke.explain.run import NUM_ALTERNATIVES, Run, story_of
from twostroke.explain.story import Story
from twostroke.roofline.hardware import HardwareSpec
from twostroke.roofline.planned_model import find_planned

ROOFS = HardwareSpec("a machine", ((1 << 20, 30e9),), {"16bit": 500e9}, num_threads=1)
TEXT = "rent the </script> <b>in</b>"


@contextmanager
def running(path: Path) -> Iterator[Run]:
    """A prompt with a chat template around it, in several chunks, answered greedily."""
    with LLM(path, threads=1, max_batch=1, speculation=False, max_step_tokens=16) as llm:
        ids = llm.render([{"role": "user", "content": TEXT}]).ids
        done = llm.generate(ids, temperature=0, max_tokens=9, ignore_eos=True, logprobs=NUM_ALTERNATIVES)
        records = tuple(llm.running.engine.ledger.recent)
        yield Run(llm, replace(find_planned(str(path)), name="tiny"), ids, TEXT, done, records, ROOFS)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with running(write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", seed=3, types="Q8_0")) as found:
        yield found


@pytest.fixture(scope="session")
def story(run: Run) -> Story:
    return story_of(run)
