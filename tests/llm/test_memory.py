"""The memory plan: equal to what the executor then takes, refused in numbers before anything is taken."""

from pathlib import Path
from typing import Any

import pytest
from tests.tiny import write_tiny_gguf
from tests.tiny_families import KEYS, write_tiny_family

from twostroke import LLM
from twostroke.errors import NotEnoughMemoryError
from twostroke.llm import loading
from twostroke.llm.config import LLMConfig
from twostroke.llm.memory import MemoryPlan, plan_memory
from twostroke.models.load import load_model
from twostroke.models.registry import OUTPUTS
from twostroke.program.passes import fuse
from twostroke.roofline.own_memory import LEAST_POOL_TOKENS

MODELS: list[dict[str, Any]] = [
    {},
    {"types": "Q8_0", "context": 200},
    {"arch": "qwen2", "num_layers": 3, "num_heads": 6, "head_dim": 20, "vocab": 333},
    {"types": {"default": "Q4_K", "token_embd": "Q6_K"}, "dim": 256, "ffn_dim": 512, "tied": False},
]


@pytest.mark.parametrize("fields", MODELS, ids=lambda fields: ",".join(map(str, fields)) or "default")
@pytest.mark.parametrize("options", [{}, {"threads": 2, "kv": "f32", "max_step_tokens": 40, "max_batch": 3}])
def test_the_plan_is_what_the_executor_takes(tmp_path: Path, fields: dict[str, Any], options: dict[str, Any]) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", **fields)
    with LLM(path, **{"threads": 1, **options}) as llm:
        executor, plan = llm.running.loaded.executor, llm.memory
        assert plan.weight_bytes == executor.weight_bytes
        assert plan.activation_bytes == executor.scratch_bytes
        assert plan.kv_pool_bytes == executor.kv_pool_bytes


@pytest.mark.parametrize("types", ["F16", "Q8_0"])
@pytest.mark.parametrize("family", KEYS)
def test_the_plan_knows_every_family(tmp_path: Path, family: str, types: str) -> None:
    path = write_tiny_family(tmp_path / "m.gguf", family, types=types)
    with LLM(path, threads=2, context=512, max_step_tokens=40) as llm:
        executor, plan = llm.running.loaded.executor, llm.memory
        assert plan.weight_bytes == executor.weight_bytes
        assert plan.activation_bytes == executor.scratch_bytes
        assert plan.kv_pool_bytes == executor.kv_pool_bytes


def plan(path: Path, available: int, **options: Any) -> MemoryPlan:
    model, config = load_model(path, OUTPUTS), LLMConfig.of(**options)
    context = config.context or model.config.context_length
    with model.source:
        return plan_memory(
            fuse(model.program), model.source, config, context=context, num_threads=1, available=available
        )


def without_kv(path: Path) -> int:
    whole = plan(path, 2**33)
    return whole.weight_bytes + whole.activation_bytes + whole.overhead_bytes


def test_the_pool_is_the_batch_in_full_contexts(tiny_path: Path) -> None:
    assert plan(tiny_path, 2**33, max_batch=1).pool_tokens == 2048
    assert plan(tiny_path, 2**33, max_batch=5).pool_tokens == 5 * 2048


def test_the_pool_is_at_most_half_of_what_is_free(tiny_path: Path) -> None:
    per_token = plan(tiny_path, 2**33).kv_bytes_per_token
    assert plan(tiny_path, without_kv(tiny_path) + 2 * 1024 * per_token).pool_tokens == 1024


def test_a_context_that_was_asked_for_is_not_made_smaller(tiny_path: Path) -> None:
    room = without_kv(tiny_path) + 2048 * plan(tiny_path, 2**33).kv_bytes_per_token
    assert plan(tiny_path, room).pool_tokens == 1024
    assert plan(tiny_path, room, context=2048).pool_tokens == 2048
    with pytest.raises(NotEnoughMemoryError, match="KV cache of 2048 tokens"):
        plan(tiny_path, room - 1, context=2048)


def test_too_little_memory_is_refused_with_the_sum_before_anything_is_allocated(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: Any, **options: Any) -> None:
        raise AssertionError("the executor was made")

    monkeypatch.setattr(loading, "available_memory", lambda: 10 * 2**20)
    monkeypatch.setattr(loading, "NativeExecutor", never)
    with pytest.raises(NotEnoughMemoryError) as caught:
        LLM(tiny_path, threads=1)
    message = str(caught.value)
    least = plan(tiny_path, 2**33)
    total = without_kv(tiny_path) + LEAST_POOL_TOKENS * least.kv_bytes_per_token
    assert "\n" not in message
    for part in ("weights", "KV cache", "activations", "overhead", f"{10 * 2**20} bytes"):
        assert part in message
    assert f"({total} bytes)" in message
