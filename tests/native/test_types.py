"""Every tensor type with kernels in a whole tiny model from a file, and at the ends of what its scales can say."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.native.in_memory import (
    SCALES,
    MemorySource,
    Packed,
    chunk,
    floats,
    native,
    random_matrix,
    run,
)
from tests.tiny import write_tiny_gguf

from twostroke.models.load import MATRIX_TYPES, Model, dequantized, load_model
from twostroke.native.executor import available_isas
from twostroke.program.builder import Builder
from twostroke.program.reference import ReferenceExecutor
from twostroke.weights.gguf_writer import write_gguf
from twostroke.weights.tensor_types import TensorType

ISAS = available_isas()
GGUF_TYPES = [kind for kind in MATRIX_TYPES if kind < 1000]  # beyond that, types that no GGUF file has
SIZES = {"dim": 256, "num_heads": 4, "head_dim": 64, "ffn_dim": 256, "vocab": 288, "num_layers": 1}
PARTS = ((0, 19), (19, 35), (35, 36), (36, 37))  # of 37 rows: chunks with tails, then two rows one by one


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_model(write_tiny_gguf(tmp_path_factory.mktemp("base") / "model.gguf", tied=False, **SIZES))


def model_in(base: Model, kind: TensorType, path: Path) -> Model:
    """The base with random blocks of one type for matrices. Norms make up for how large those are."""
    tensors: dict[str, Packed] = {}
    values = dequantized(base.source)
    spread = float(random_matrix(kind, 64, 256).values.std()) * 16
    for index, (name, weight) in enumerate(base.program.weights.items()):
        if len(weight.shape) == 1:
            tensors[name] = floats(1.5 / spread * values(name))
        else:
            tensors[name] = random_matrix(kind, *weight.shape, seed=index)
    table = {name: (tensor.type, tensor.shape) for name, tensor in tensors.items()}
    write_gguf(path, dict(base.metadata), table, lambda name: tensors[name].data)
    return load_model(path)


@pytest.mark.parametrize("kind", [kind for kind in MATRIX_TYPES if kind.is_in_gguf], ids=lambda kind: kind.name)
def test_a_tiny_model_of_each_type(base: Model, kind: TensorType, tmp_path: Path) -> None:
    """On every instruction set the bits of scalar code, within 1e-3 of the logits' spread of float64's, in the file's
    number of bytes."""
    model = model_in(base, kind, tmp_path / "model.gguf")
    ids = np.random.default_rng(1).integers(0, model.config.vocab_size, PARTS[-1][1])
    oracle = ReferenceExecutor(model.program, dequantized(model.source), np.float64)
    expected = oracle.forward(oracle.new_state(), ids)["logits"]
    assert expected.std() > 0.1
    found = []
    for isa in ISAS:
        executor = native(model.program, model.source, isa, num_threads=2, kv_type="f32")
        found.append(np.concatenate([run(executor, chunk(ids[a:b], start=a))[1] for a, b in PARTS]))
        np.testing.assert_array_equal(found[-1], found[0])
        assert executor.weight_bytes == sum(model.source.info(name).num_bytes for name in model.program.weights)
    error = np.abs(found[0] - expected)
    assert error.max() < 1e-3 * expected.std()
    assert np.median(error) < 1e-4 * expected.std()


def rows_of(packed: Packed, isa: str) -> np.ndarray:
    """Every row of a table looked up."""
    rows = packed.shape[0]
    b = Builder()
    b.output("logits", b.output_rows(b.embed("x", *packed.shape)))
    executor = native(b.build(), MemorySource({"x.weight": packed}), isa, max_context=rows, max_step_tokens=rows)
    return run(executor, chunk(range(rows)))[1]


def same_values(got: np.ndarray, expected: np.ndarray) -> bool:
    """Bit for bit, but for what kind of NaN a NaN is."""
    nan = np.isnan(expected)
    same = got.view(np.uint32) == expected.view(np.uint32)
    return bool(np.all(np.where(nan, np.isnan(got), same)))


@cache
def every_half() -> np.ndarray:
    """All 65,536 patterns, (65536, 2) uint8."""
    return np.arange(1 << 16, dtype=np.uint16)[:, None].view(np.uint8)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", [TensorType.F16, TensorType.BF16], ids=lambda kind: kind.name)
def test_every_16_bit_float(kind: TensorType, isa: str) -> None:
    packed = Packed(kind, (2048, 32), every_half().reshape(-1))
    assert same_values(rows_of(packed, isa), packed.values)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", SCALES, ids=lambda kind: kind.name)
def test_every_scale(kind: TensorType, isa: str) -> None:
    """Subnormal, infinite, NaN, negative: what dequantising gives, which is one product (and one sum) of them."""
    count = 1 << 12  # every 16th pattern, its low bits at random
    blocks = random_matrix(kind, count, kind.block_size).data.reshape(count, -1)
    low = np.random.default_rng(0).integers(0, 16, count)
    for at in SCALES[kind]:
        blocks[:, at : at + 2] = every_half().reshape(count, 16, 2)[np.arange(count), low]
        low = np.roll(low, 1)
    packed = Packed(kind, (count, kind.block_size), blocks.reshape(-1))
    assert same_values(rows_of(packed, isa), packed.values)


@pytest.mark.parametrize("isa", ISAS)
def test_every_exponent_of_mxfp4(isa: str) -> None:
    """From 2^-127, whose products are subnormal, to 2^128 (of which a doubled value overflows)."""
    blocks = random_matrix(TensorType.MXFP4, 256, 64).data.reshape(256, 2, -1)
    blocks[:, 0, 0] = np.arange(256)
    blocks[:, 1, 0] = np.arange(256)[::-1]
    packed = Packed(TensorType.MXFP4, (256, 64), blocks.reshape(-1))
    assert same_values(rows_of(packed, isa), packed.values)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", SCALES, ids=lambda kind: kind.name)
def test_a_block_s_scale_beyond_numbers_is_seen(kind: TensorType, isa: str) -> None:
    """A weight that is not finite makes its own output so, and no other row's."""
    blocks = random_matrix(kind, 20, kind.block_size).data.reshape(20, -1)
    blocks[3, SCALES[kind][0] : SCALES[kind][0] + 2] = np.array([np.nan], np.float16).view(np.uint8)
    b = Builder()
    b.output("logits", b.linear(b.output_rows(b.embed("x", 2, kind.block_size)), "w", 20))
    x = np.random.default_rng(0).standard_normal((2, kind.block_size))
    weights = Packed(kind, (20, kind.block_size), blocks.reshape(-1))
    _, got = run(native(b.build(), MemorySource({"x.weight": x, "w.weight": weights}), isa), chunk([0, 1]))
    assert np.isnan(got[:, 3]).all() and np.isfinite(np.delete(got, 3, axis=1)).all()
