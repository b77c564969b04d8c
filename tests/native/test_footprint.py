"""The footprint is what the executor allocates: for every family, type of cache, and setting."""

from pathlib import Path
from typing import Any

import pytest
from tests.golden_families import FOLDER, NATIVE
from tests.tiny import write_tiny_gguf

from twostroke.models.load import load_model
from twostroke.models.registry import OUTPUTS
from twostroke.native.executor import KV_BITS, ExecutorConfig, NativeExecutor
from twostroke.native.footprint import footprint
from twostroke.program.passes import fuse
from twostroke.weights.quantized_source import QuantizedSource
from twostroke.weights.tensor_types import TensorType

SETTINGS: list[dict[str, Any]] = [
    {"num_threads": 1, "max_context": 64, "max_step_tokens": 512, "kv_type": "f16"},
    {"num_threads": 3, "max_context": 1000, "max_step_tokens": 17, "kv_type": "f32"},
    {"num_threads": 2, "max_context": 300, "max_step_tokens": 64, "kv_type": "q8_0"},
]


def check(path: Path, settings: dict[str, Any], outputs: tuple[str, ...] = OUTPUTS, kind: str = "") -> None:
    model = load_model(path, outputs)
    program = fuse(model.program)
    source = QuantizedSource(model.source, TensorType[kind]) if kind else model.source
    options = {key: value for key, value in settings.items() if key != "kv_type"}
    found = footprint(program, source, kv_bits=KV_BITS[settings["kv_type"]], **options)
    blocks = tuple(range(3, 3 + len(program.cache_groups)))
    executor = NativeExecutor(program, source, ExecutorConfig(num_blocks=blocks, **settings), fused=False)
    assert executor.weight_bytes == found.weight_bytes
    assert executor.scratch_bytes == found.scratch_bytes
    assert executor.kv_pool_bytes == sum(n * size for n, size in zip(blocks, found.block_bytes, strict=True))
    assert found.kv_bytes_per_token * executor.block_tokens == sum(found.block_bytes)
    model.source.close()


@pytest.mark.parametrize("settings", SETTINGS, ids=["one thread", "long context", "8-bit cache"])
@pytest.mark.parametrize("family", NATIVE)
def test_every_family(family: str, settings: dict[str, Any]) -> None:
    check(FOLDER / family, settings)


def test_caches_of_several_groups_are_among_them() -> None:
    model = load_model(FOLDER / "gemma3")
    assert len(model.program.cache_groups) == 2
    model.source.close()


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "F16", "BF16"])
@pytest.mark.parametrize("family", ["mixtral", "gemma2", "gpt-oss"])
def test_in_other_types(family: str, kind: str) -> None:
    check(FOLDER / family, SETTINGS[1], kind=kind)


@pytest.mark.parametrize("outputs", [("logits",), ("hidden",)])
def test_other_outputs(outputs: tuple[str, ...]) -> None:
    check(FOLDER / "mistral", SETTINGS[0], outputs)


@pytest.mark.parametrize(
    "fields",
    [
        {"types": {"default": "Q4_K", "token_embd": "Q6_K"}, "dim": 256, "ffn_dim": 512, "tied": False},
        {"types": "Q4_1", "rope_factors": True, "vocab": 333},
        {"arch": "qwen2", "num_heads": 6, "head_dim": 20, "vocab": 333},
    ],
    ids=",".join,
)
def test_tiny_models(tmp_path: Path, fields: dict[str, Any]) -> None:
    for settings in SETTINGS:
        check(write_tiny_gguf(tmp_path / "m.gguf", **fields), settings)
