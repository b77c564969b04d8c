"""Costs and memory of known models, and of latent and recurrent ops, against figures counted by hand or published.

Bytes of KV a token in 16 bits: Meta's Llama 3, Qwen 2.5 and 3, Mixtral, Yi 1.5 and GPT-2 XL are 2 x layers x KV heads x
head dim x 2 by their config.json; DeepSeek V3 is 61 x (512 + 64) x 2 (arXiv:2412.19437, section 4.2).
"""

from typing import Any

import pytest

from twostroke.models.hf_config import config_from_hf
from twostroke.models.registry import build_program
from twostroke.program.builder import Builder
from twostroke.program.cost import (
    ChunkShape,
    CostModel,
    Storage,
    kv_bytes,
    kv_bytes_per_token,
    measure,
    state_bytes,
    total_weight_bytes,
)
from twostroke.program.cost_terms import Unit
from twostroke.program.passes import fuse
from twostroke.program.phase import Phase
from twostroke.program.program import Program
from twostroke.program.values import CacheSpec, RopeSpec
from twostroke.roofline.model_catalogue import find_model

DECODE = Phase.DECODE


def usual(kind: str, layers: int, dim: int, heads: int, kv_heads: int, **more: Any) -> dict[str, Any]:
    sizes = {"num_hidden_layers": layers, "hidden_size": dim, "num_attention_heads": heads}
    rest = {"num_key_value_heads": kv_heads, "intermediate_size": 64, "vocab_size": 100}
    return {"model_type": kind, **sizes, **rest, "max_position_embeddings": 32768, **more}


MOE = {"num_local_experts": 8, "num_experts_per_tok": 2}
GPT2_XL = {"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "n_positions": 1024, "vocab_size": 50257}
# Facts, bits of an element, bytes a token.
KV_BYTES: dict[str, tuple[dict[str, Any], float, int]] = {
    "Llama 3 8B": (usual("llama", 32, 4096, 32, 8), 16, 131_072),
    "Llama 3 70B": (usual("llama", 80, 8192, 64, 8), 16, 327_680),
    "Mixtral 8x7B": (usual("mixtral", 32, 4096, 32, 8, **MOE), 16, 131_072),
    "Qwen 1.5 32B": (usual("qwen2", 64, 5120, 40, 8), 16, 262_144),
    "Yi 1.5 34B": (usual("llama", 60, 7168, 56, 8), 16, 245_760),
    "Qwen 2.5 0.5B": (usual("qwen2", 24, 896, 14, 2), 16, 12_288),
    "Qwen 2.5 0.5B, 8.5 bits": (usual("qwen2", 24, 896, 14, 2), 8.5, 6_528),
    "Qwen 2.5 1.5B": (usual("qwen2", 28, 1536, 12, 2), 16, 28_672),
    "Qwen3 4B": (usual("qwen3", 36, 2560, 32, 8, head_dim=128), 16, 147_456),
    "Qwen3 32B": (usual("qwen3", 64, 5120, 64, 8, head_dim=128), 16, 262_144),
    "GPT-2 XL": (GPT2_XL, 16, 307_200),
}


@pytest.mark.parametrize("name", KV_BYTES)
def test_kv_bytes_per_token(name: str) -> None:
    facts, bits, expected = KV_BYTES[name]
    program = build_program(config_from_hf(facts))
    storage = Storage({}, bits)
    assert kv_bytes_per_token(program, storage) == expected
    assert kv_bytes(program, storage, 1000) == 1000 * expected


def catalogue(name: str) -> tuple[Program, Storage]:
    program = fuse(build_program(find_model(name).config()))
    return program, Storage(dict.fromkeys(program.weights, 16.0))


def test_latents_of_deepseek_v3() -> None:
    """One latent of 512 and a rotated key of 64 a layer, without a factor of two for values."""
    program, storage = catalogue("deepseek-v3")
    assert kv_bytes_per_token(program, storage) == 61 * (512 + 64) * 2 == 70_272
    (group,) = program.cache_groups
    assert (group.kind, group.elements_per_token) == ("latent", 61 * 576)


def test_hybrid_qwen_keeps_keys_in_every_fourth_layer_only() -> None:
    """Qwen3.6 27B: 16 of 64 layers, 4 heads of 256: 65,536 bytes a token; the other 48 keep 48 matrices of 128 x 128
    and three rows of 2 x 16 x 128 + 48 x 128 channels, whatever the length."""
    program, storage = catalogue("qwen3.6-27b")
    assert kv_bytes_per_token(program, storage) == 2 * 16 * 4 * 256 * 2 == 65_536
    assert state_bytes(program, storage) == 48 * (48 * 128 * 128 + 3 * (2 * 16 * 128 + 48 * 128)) * 4
    reads = [CostModel(program, storage).step([ChunkShape(n, 1, 1, phase=DECODE)]).kv_bytes for n in (0, 1000)]
    assert reads[1] - reads[0] == 1000 * 65_536
    assert reads[0] == 2 * 65_536 + 2 * state_bytes(program, storage)  # written and read
    assert program.chunk_alignment == 64


def test_windows_bound_the_memory_of_gemma_4() -> None:
    """31B: 50 layers of 16 heads of 256 keep 1,024 tokens, 10 of 4 heads of 512 all."""
    program, storage = catalogue("gemma-4-31b")
    per_window, per_full = 50 * 2 * 16 * 256 * 2, 10 * 2 * 4 * 512 * 2
    for tokens in (1, 1024, 1025, 100_000):
        assert kv_bytes(program, storage, tokens) == min(tokens, 1024) * per_window + tokens * per_full


def test_qwen3_4b_reads_its_tied_head_once_a_token() -> None:
    """All of 4,022,468,096 parameters and one row of the table that is the head as well, published as 8.05 GB."""
    program, storage = catalogue("qwen3-4b")
    cost = CostModel(program, storage).step([ChunkShape(0, 1, 1, phase=DECODE)])
    assert total_weight_bytes(program, storage) == 2 * 4_022_468_096
    assert cost.weight_bytes == 2 * (4_022_468_096 + 2560)
    assert cost.weight_bytes == pytest.approx(8.05e9, rel=1e-3)


def test_deepseek_v3_reads_37_billion_parameters_a_token() -> None:
    """As published: 671B in all, 37B a token (arXiv:2412.19437), counted without the embedding table."""
    program, storage = catalogue("deepseek-v3")
    cost = CostModel(program, storage).step([ChunkShape(0, 1, 1, phase=DECODE)])
    assert cost.weight_bytes / 2 == pytest.approx(37e9, rel=0.02)
    assert total_weight_bytes(program, storage) / 2 == pytest.approx(671e9, rel=0.001)


def latent_program() -> Program:
    """Two heads of 3 + 2 and values of 4, from a latent of 5."""
    b = Builder()
    x = b.embed("table", 50, 7)
    inputs = (b.linear(x, "q", 10), b.linear(x, "latent", 5), b.linear(x, "k", 2))
    rope = RopeSpec(2, 1e4, "interleaved")
    b.output("y", b.latent_attention(inputs, "expand", num_heads=2, value_dim=4, rope=rope, scale=1.0))
    return b.build()


def test_latent_attention_by_hand() -> None:
    program = latent_program()
    attention = program.ops[-1]
    without = Program(program.ops[:-1], {"y": "q"})
    storage = Storage(dict.fromkeys(program.weights, 16.0))
    models = [CostModel(each, storage) for each in (program, without)]

    def cost(*chunks: ChunkShape) -> tuple[float, float]:
        whole, rest = (model.step(chunks) for model in models)
        return whole.flops - rest.flops, whole.kv_bytes

    expand, rotation = 2 * 2 * (3 + 4) * 5, 3 * (2 + 1) * 2
    assert attention.weights[0].num_elements * 2 == expand
    prefill = 7 * rotation + 10 * expand + (4 + 5 + 6 + 7 + 8 + 9 + 10) * 2 * (2 * (3 + 2 + 4) + 4)
    assert cost(ChunkShape(3, 7, 0)) == (prefill, (7 + 10) * (5 + 2) * 2)
    decode = rotation + expand + 10 * 2 * (2 * (5 + 2 + 5) + 4)
    assert cost(ChunkShape(9, 1, 1, phase=DECODE)) == (decode, (1 + 10) * (5 + 2) * 2)


def test_the_gated_delta_rule_by_hand() -> None:
    """Two key heads of 3, four value heads of 2."""
    b = Builder()
    x = b.embed("table", 50, 8)
    q, k, v = (b.linear(x, name, dim) for name, dim in (("q", 6), ("k", 6), ("v", 8)))
    write, decay = b.linear(x, "write", 4), b.linear(x, "decay", 4)
    b.output("y", b.gated_delta(q, k, v, write, decay, "delta", num_key_heads=2))
    program = b.build()
    storage = Storage(dict.fromkeys(program.weights, 16.0))
    both = (program, Program(program.ops[:-1], {"y": "q"}))
    models = [CostModel(each, storage) for each in both]
    states = 4 * 3 * 2
    shared = 4 * (6 + 6) + 12 * 4
    for chunk, flops in (
        (ChunkShape(0, 5, 0, phase=DECODE), 5 * (shared + 7 * states)),
        (ChunkShape(0, 5, 0), 5 * (shared + 6 * states + 4 * (2 * 64 * (3 * 3 + 2 * 2) + 64 * 64 / 3))),
    ):
        whole, rest = (model.step([chunk]) for model in models)
        assert whole.flops - rest.flops == pytest.approx(flops)
        assert whole.kv_bytes == 2 * states * 4
    assert state_bytes(program, storage) == states * 4


def test_segments_row_by_row() -> None:
    for start, length, size in ((0, 1, 4), (3, 1, 4), (4, 1, 4), (2, 11, 4), (8, 4, 4), (5, 30, 7)):
        chunk = (ChunkShape(start, length, 0),)
        rows = range(start, start + length)
        assert measure(Unit.ROW_SEGMENT, size, chunk) == sum(row % size + 1 for row in rows)
        seen = {key for row in rows for key in range(row - row % size, row + 1)}
        assert measure(Unit.CHUNK_SEGMENT, size, chunk) == len(seen)
    b = Builder()
    x = b.embed("table", 50, 8)
    b.output("y", b.attention(x, x, x, CacheSpec("cache", 2, 4, segment=16)))
    assert [kv_bytes(b.build(), Storage({}), tokens) / (2 * 8 * 2) for tokens in (1, 16, 17, 99)] == [1, 16, 16, 16]
