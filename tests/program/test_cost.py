"""Cost against figures counted by hand, and against sums over every row and key."""

import random
from dataclasses import replace

import pytest
from tests.program.samples import HAND, TINY

from twostroke.models.config import ModelConfig
from twostroke.models.registry import build_program
from twostroke.program.builder import Builder
from twostroke.program.cost import (
    ChunkShape,
    CostModel,
    StepCost,
    Storage,
    Unit,
    kv_bytes_per_token,
    measure,
    total_weight_bytes,
)
from twostroke.program.passes import fuse
from twostroke.program.program import Program
from twostroke.program.values import CacheSpec

LLAMA_2_13B = ModelConfig(
    architecture="llama",
    name="Llama 2 13B",
    num_layers=40,
    dim=5120,
    num_heads=40,
    num_kv_heads=40,
    head_dim=128,
    ffn_dim=13824,
    vocab_size=32000,
    context_length=4096,
    norm_eps=1e-5,
    rope_dim=128,
)
LLAMA_3_8B = replace(
    LLAMA_2_13B,
    name="Llama 3 8B",
    num_layers=32,
    dim=4096,
    num_heads=32,
    num_kv_heads=8,
    ffn_dim=14336,
    vocab_size=128256,
)


def bits_of(name: str) -> float:
    """Different bits for each kind of weight, so that a figure charged to the wrong one shows."""
    if name.endswith("norm.weight"):
        return 32.0
    return {"token_embd.weight": 8.0, "output.weight": 16.0}.get(name, 4.0)


def storage_of(program: Program) -> Storage:
    return Storage({name: bits_of(name) for name in program.weights})


def sixteen_bits(program: Program) -> Storage:
    return Storage(dict.fromkeys(program.weights, 16.0))


def test_a_step_counted_by_hand() -> None:
    """Two rows after three tokens, the last with an output, and three rows of another request without any."""
    program = fuse(build_program(HAND))
    cost = CostModel(program, storage_of(program)).step([ChunkShape(3, 2, 1), ChunkShape(0, 3, 0)])
    qkv = 2 * (8 + 4 + 4) * 8 + 4 * 8  # multiply-adds of the matrices, norm
    rope = 3 * (2 + 1) * 4  # three FLOPs for each element of two query heads and a key head
    output = 2 * 8 * 8 + 8  # and the residual
    gated = 2 * (16 + 16) * 8 + 4 * 8 + 5 * 16  # and norm and silu times up
    down = 2 * 8 * 16 + 8
    keys_seen = (4 + 5) + (1 + 2 + 3)
    per_key = (2 * 4 + 2 * 4 + 4) * 2  # scores, mix and softmax of two heads of 4
    logits = 2 * 10 * 8 + 4 * 8
    assert cost.flops == 5 * (qkv + rope + output + gated + down) + keys_seen * per_key + logits == 7532
    matrices = (8 * 8 + 4 * 8 + 4 * 8) + 8 * 8 + 2 * 16 * 8 + 8 * 16
    assert cost.weight_bytes == 5 * 8 * 1 + matrices / 2 + 2 * 8 * 4 + (10 * 8 * 2 + 8 * 4) == 584
    assert cost.kv_bytes == (5 + (5 + 3)) * 2 * 4 * 2 == 208
    rows = 8 + (8 + 8 + 4 + 4) + (8 + 4 + 4 + 8) + (8 + 8 + 8) + (8 + 16) + (16 + 8 + 8)
    assert cost.activation_bytes == (5 * rows + (8 + 8) + (8 + 10)) * 4 == 2856
    assert cost.bytes == 584 + 208 + 2856
    assert cost.intensity == 7532 / (584 + 208 + 2856)


def test_a_step_without_outputs_reads_no_head() -> None:
    program = fuse(build_program(HAND))
    model = CostModel(program, storage_of(program))
    some, none = model.step([ChunkShape(0, 4, 1)]), model.step([ChunkShape(0, 4, 0)])
    assert some.weight_bytes - none.weight_bytes == 10 * 8 * 2 + 8 * 4
    assert some.flops - none.flops == 2 * 10 * 8 + 4 * 8
    assert model.step([]) == StepCost(0.0, 0.0, 0.0, 0.0)


def test_a_tied_head_is_read_whole_beside_the_rows_of_tokens() -> None:
    program = fuse(build_program(replace(HAND, tied_head=True)))
    storage = storage_of(program)
    layers = total_weight_bytes(program, storage) - 10 * 8
    cost = CostModel(program, storage).step([ChunkShape(0, 3, 1)])
    assert cost.weight_bytes == layers + 10 * 8 + 3 * 8


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_fusing_saves_activation_bytes_and_nothing_else(architecture: str) -> None:
    program = build_program(replace(TINY, architecture=architecture))
    chunks = [ChunkShape(0, 17, 1), ChunkShape(5, 1, 1), ChunkShape(9, 4, 0)]
    plain, fused = (CostModel(p, storage_of(program)).step(chunks) for p in (program, fuse(program)))
    assert replace(plain, activation_bytes=0.0) == replace(fused, activation_bytes=0.0)
    assert fused.activation_bytes < 0.7 * plain.activation_bytes


def test_llama_2_13b() -> None:
    """26.0 GB in 16 bits; a token reads all but the embedding table, of which one row: 25.7 GB."""
    program = fuse(build_program(LLAMA_2_13B))
    storage = sixteen_bits(program)
    parameters = 40 * (4 * 5120**2 + 3 * 5120 * 13824 + 2 * 5120) + 2 * 32000 * 5120 + 5120
    assert total_weight_bytes(program, storage) == 2 * parameters == 26_031_728_640
    cost = CostModel(program, storage).step([ChunkShape(0, 1, 1)])
    assert cost.weight_bytes == 2 * (parameters - 31999 * 5120) == 25_704_058_880
    assert cost.flops == pytest.approx(2 * (parameters - 32000 * 5120), rel=1e-3)


def test_kv_bytes_per_token() -> None:
    """Llama 3 8B: 2 x 32 layers x 8 heads x 128 x 2 bytes; Llama 2 13B has no grouped heads."""
    for config, expected in ((LLAMA_3_8B, 131_072), (LLAMA_2_13B, 2 * 40 * 5120 * 2)):
        program = build_program(config)
        storage = sixteen_bits(program)
        assert kv_bytes_per_token(program, storage) == expected
        (group,) = program.cache_groups
        assert group.elements_per_token * 2 == expected
        model = CostModel(program, storage)
        reads = [model.step([ChunkShape(start, 1, 1)]).kv_bytes for start in (0, 1000)]
        assert reads[1] - reads[0] == 1000 * expected


def test_contexts_against_sums_over_keys() -> None:
    rng = random.Random(0)
    for _ in range(500):
        chunks = tuple(
            ChunkShape(rng.choice((0, rng.randrange(40))), length := rng.randrange(1, 30), rng.randrange(length + 1))
            for _ in range(rng.randrange(1, 4))
        )
        window = rng.choice((None, rng.randrange(1, 60)))
        reach = 10**9 if window is None else window
        row_context = chunk_context = 0
        for chunk in chunks:
            seen = [
                range(max(0, row - reach + 1), row + 1) for row in range(chunk.start, chunk.start + chunk.length)
            ]  # keys each row sees
            row_context += sum(map(len, seen))
            chunk_context += len(set().union(*seen))
        assert measure(Unit.ROW_CONTEXT, window, chunks) == row_context
        assert measure(Unit.CHUNK_CONTEXT, window, chunks) == chunk_context


def test_each_window_is_measured_by_itself() -> None:
    b = Builder()
    x = b.embed("table", 50, 8)
    for index, window in enumerate((None, 4)):
        q, k, v = (b.linear(x, f"{name}{index}", 8) for name in "qkv")
        x = b.add(x, b.attention(q, k, v, CacheSpec(f"cache{index}", 1, 8, window)))
    b.output("logits", b.output_rows(x))
    program = b.build()
    cost = CostModel(program, sixteen_bits(program)).step([ChunkShape(99, 1, 1)])
    assert cost.kv_bytes == (1 + 100 + 1 + 4) * 2 * 8 * 2
    assert [group.window for group in program.cache_groups] == [None, 4]
