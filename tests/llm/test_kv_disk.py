"""An LLM with a directory for KV blocks: found again after closing, by the same model used in the same way alone."""

from pathlib import Path

import pytest
from tests.tiny import write_tiny_gguf

from twostroke.errors import ConfigError
from twostroke.llm.llm import LLM

PROMPT = [5, 9, 33, 2, 17] * 12


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_tiny_gguf(tmp_path / "tiny.gguf", "llama"))


def ask(model: str, disk: Path, **options: object) -> tuple[tuple[int, ...], int]:
    with LLM(model, threads=1, context=256, kv_disk=str(disk), **options) as llm:
        answer = llm.generate(PROMPT, max_tokens=8, temperature=0)
    return tuple(answer.token_ids), answer.cached_tokens


def test_a_second_run_begins_where_the_first_left(model: str, tmp_path: Path) -> None:
    first = ask(model, tmp_path / "kv")
    assert first[1] == 0 and ask(model, tmp_path / "kv") == (first[0], 48)


@pytest.mark.parametrize("change", [{"kv": "f32"}, {"weights": "q8_0"}, {"isa": "scalar"}, {"context": 128}, "model"])
def test_another_use_of_it_finds_nothing(model: str, tmp_path: Path, change: dict | str) -> None:
    ask(model, tmp_path / "kv")
    if change == "model":
        write_tiny_gguf(Path(model), "llama", seed=7)
    options = change if isinstance(change, dict) else {}
    if "context" in options:
        with LLM(model, threads=1, kv_disk=str(tmp_path / "kv"), **options) as llm:
            assert llm.generate(PROMPT, max_tokens=8, temperature=0).cached_tokens == 0
    else:
        assert ask(model, tmp_path / "kv", **options)[1] == 0


def test_a_size_that_is_none_is_refused(model: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="kv_disk_size must be a number of GiB above 0"):
        LLM(model, kv_disk=str(tmp_path), kv_disk_size=0.0)


def test_another_turn_of_a_chat_reuses_the_prompt_and_the_answer_only_if_told(model: str) -> None:
    for reuse, cached in ((False, 48), (True, 80)):
        with LLM(model, threads=1, context=256, reuse_generated=reuse) as llm:
            answer = llm.generate(PROMPT[:56], max_tokens=30, temperature=0, ignore_eos=True)
            turn = [*PROMPT[:56], *answer.token_ids, 3, 4]
            assert llm.generate(turn, max_tokens=2, temperature=0).cached_tokens == cached
