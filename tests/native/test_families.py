"""Every family on the native executor: against `transformers` and the reference, and itself bit for bit."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.golden_families import FOLDER, IN_GGUF, NATIVE, PLANNED
from tests.models.family_gguf import write_family_gguf
from tests.native.in_memory import ROUNDING, chunk, native, run
from tests.tiny_families import KEYS, write_tiny_family
from tests.weights.hf_directory import bf16, safetensors_bytes

from twostroke.errors import UnsupportedModelError
from twostroke.models.load import Model, dequantized, load_model
from twostroke.native.executor import available_isas
from twostroke.native.footprint import footprint
from twostroke.program.phase import Phase
from twostroke.program.reference import ReferenceExecutor

ISAS = available_isas()
# Long enough for windows, one after the other, the last one by one.
CHUNKS = [(0, 17), (17, 34), *((row, row + 1) for row in range(34, 40))]
K_QUANTS = {"types": {"default": "Q4_K", "ffn_down": "Q6_K", "ffn_down_exps": "Q6_K"}, "dim": 256, "ffn_dim": 256}


@cache
def golden(name: str) -> tuple[np.ndarray, np.ndarray]:
    truth = np.load(FOLDER / name / "golden.npz")
    return truth["ids"], truth["logits"]


def logits(model: Model, ids: np.ndarray, isa: str, prompt: Phase = Phase.PREFILL, **settings: Any) -> np.ndarray:
    """Of every row, in chunks; the rows one by one are generated ones, and the others of the phase `prompt`."""
    executor = native(model.program, model.source, isa, **{"kv_type": "f32", "max_context": 64, **settings})
    parts = []
    for begin, end in CHUNKS:
        phase = Phase.DECODE if end - begin == 1 else prompt
        parts.append(run(executor, chunk(ids[begin:end], start=begin, phase=phase))[1])
    return np.concatenate(parts)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", NATIVE)
def test_float32_checkpoints_are_those_of_transformers(name: str, isa: str) -> None:
    ids, expected = golden(name)
    model = load_model(FOLDER / name)
    np.testing.assert_allclose(logits(model, ids, isa), expected, rtol=0, atol=1e-3)
    model.source.close()


def in_bf16(name: str, folder: Path) -> Path:
    """A golden checkpoint with every tensor cut to BF16; what is not of floats (packed experts) stays."""
    tensors = load_file(FOLDER / name / "model.safetensors")
    cut = {name: bf16(tensor) if tensor.dtype == np.float32 else tensor for name, tensor in tensors.items()}
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(cut))
    (folder / "config.json").write_bytes((FOLDER / name / "config.json").read_bytes())
    return folder


@pytest.mark.parametrize("name", NATIVE)
def test_bf16_checkpoints_differ_by_the_rounding_of_their_weights(name: str, tmp_path: Path) -> None:
    """Bit for bit the same as scalar code; 1e-3 from float64 of the same weights, a few hundredths from the golden.
    Prompt rows, whose inputs may be rounded to bfloat16 too, are a tenth of the logits' spread from float64 at most."""
    ids, golden_logits = golden(name)
    model = load_model(in_bf16(name, tmp_path))
    found = logits(model, ids, ISAS[-1], Phase.DECODE)
    np.testing.assert_array_equal(found, logits(model, ids, "scalar"))
    reference = ReferenceExecutor(model.program, dequantized(model.source), np.float64)
    expected = reference.forward(reference.new_state(), ids)["logits"]
    assert np.abs(found - expected).max() < 1e-3
    error = np.abs(logits(model, ids, ISAS[-1]) - expected).max(axis=1) / expected.std()
    assert np.median(error) < 0.1
    rounding = np.sqrt(np.mean((found - golden_logits) ** 2, axis=1)) / golden_logits.std()
    assert 1e-4 < np.median(rounding) < 0.05
    model.source.close()


@pytest.mark.parametrize("name", IN_GGUF)
def test_a_gguf_gives_what_its_checkpoint_gives(name: str, tmp_path: Path) -> None:
    ids, expected = golden(name)
    model = load_model(write_family_gguf(FOLDER / name, tmp_path / "model.gguf"))
    np.testing.assert_allclose(logits(model, ids, ISAS[-1]), expected, rtol=0, atol=1e-3)
    model.source.close()


@pytest.mark.parametrize("name", sorted(PLANNED))
def test_what_is_only_planned_is_refused_by_name(name: str) -> None:
    """Before anything is allocated: by the footprint too."""
    model = load_model(FOLDER / name)
    with pytest.raises(UnsupportedModelError, match=r"this model needs .*: the native executor has no code"):
        native(model.program, model.source, ISAS[-1])
    with pytest.raises(UnsupportedModelError, match="this model needs"):
        footprint(model.program, model.source, num_threads=1, max_context=64, max_step_tokens=16, kv_bits=16)
    model.source.close()


@pytest.fixture(scope="module", params=KEYS)
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A tiny model of the family in K-quants, experts included."""
    path = tmp_path_factory.mktemp("family") / "tiny.gguf"
    return load_model(write_tiny_family(path, request.param, **K_QUANTS))


IDS = np.random.default_rng(3).integers(0, 300, 40)


def test_packed_weights_are_those_of_the_reference(packed: Model) -> None:
    """Most rows within 1e-3 of the logits' spread; where two experts are all but equal, a row may choose the other.
    Of prompt rows, which may be rounded to bfloat16, within 0.03."""
    reference = ReferenceExecutor(packed.program, dequantized(packed.source), np.float64)
    expected = reference.forward(reference.new_state(), IDS)["logits"]
    for phase, near in ((Phase.DECODE, 1e-3), (Phase.PREFILL, 0.03)):
        error = np.abs(logits(packed, IDS, ISAS[-1], phase) - expected).max(axis=1) / expected.std()
        assert np.median(error) < near
        assert (error < 10 * near).mean() > (0.8 if packed.config.num_experts else 0.99)


def test_fusion_threads_and_instruction_set_do_not_change_a_bit(packed: Model) -> None:
    """Prompt rows are the same as generated ones, but where they are rounded to bfloat16."""
    expected = logits(packed, IDS, "scalar", Phase.DECODE)
    assert np.isfinite(expected).all()
    for isa in ISAS:
        np.testing.assert_array_equal(logits(packed, IDS, isa, Phase.DECODE, num_threads=2), expected)
        prompt = logits(packed, IDS, isa, num_threads=2)
        assert np.array_equal(prompt, expected) == (isa not in ROUNDING)
        np.testing.assert_array_equal(logits(packed, IDS, isa, fused=False), prompt)


def test_neighbours_in_a_step_do_not_change_a_bit(packed: Model) -> None:
    """Two requests in one step, prompt beside generated rows, give what each gives alone."""
    other = IDS[::-1].copy()
    alone = [logits(packed, ids, ISAS[-1]) for ids in (IDS, other)]
    executor = native(packed.program, packed.source, ISAS[-1], kv_type="f32", max_context=64, num_threads=2)
    tables = [tuple(np.arange(2) + 2 * request for _ in executor.num_blocks) for request in range(2)]
    tables = [tuple(table.astype(np.int32) for table in each) for each in tables]
    blocks = [{"block_ids": each} for each in tables]
    blocks = [{**each, "phase": Phase.PREFILL} for each in blocks]
    _, first = run(executor, chunk(IDS[:17], **blocks[0]), chunk(other[:9], **blocks[1]))
    _, second = run(executor, chunk(IDS[17:30], start=17, **blocks[0]), chunk(other[9:17], start=9, **blocks[1]))
    np.testing.assert_array_equal(first, np.concatenate((alone[0][:17], alone[1][:9])))
    np.testing.assert_array_equal(second, np.concatenate((alone[0][17:30], alone[1][9:17])))
