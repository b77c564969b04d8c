"""The kernels of amx, executed: every instruction but those of tiles by the processor, and those by the tile unit.

`pytest tests/native --emulate-amx` runs the tests of every instruction set so; here are some that take seconds.
"""

from pathlib import Path

import numpy as np
import pytest
from tests.native import test_linear, test_prefill
from tests.native.amx.tile_unit import HAS_TILES, TileUnit
from tests.native.in_memory import chunk, native, run
from tests.tiny import write_tiny_gguf

from twostroke import LLM
from twostroke.native import _core
from twostroke.weights.tensor_types import TensorType

KINDS = ("Q4_1", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS", "BF16")


@pytest.mark.parametrize("kind", KINDS)
def test_linears(amx: str, tile_unit: TileUnit, kind: str) -> None:
    """The bits of scalar code; low-bit weights times 8 generated rows or more in byte tiles."""
    before = tile_unit.counts
    test_linear.check_linear(TensorType[kind], 37, 4, (amx,))
    assert HAS_TILES or ((tile_unit.counts - before)["tdpbsud"] > 0) == (kind != "BF16")


@pytest.mark.parametrize("count", [8, 16, 23, 24, 40])
def test_tiles_of_generated_rows(amx: str, count: int) -> None:
    """Whole tiles, nearly whole ones, and rows that are left."""
    program, source = test_linear.case(TensorType.Q6_K, 37, 4)
    ids = np.arange(count) % test_linear.VOCAB
    found, expected = (run(native(program, source, isa), chunk(ids))[1] for isa in (amx, "scalar"))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [*KINDS, "Q2_K", "IQ2_XS", "G4_128_F16"])
def test_prompt_rows(amx: str, kind: str) -> None:
    test_prefill.check_linear(TensorType[kind], 37, 2 * max(32, TensorType[kind].block_size), amx)


def test_prompt_rows_of_several_panels_and_calls(amx: str) -> None:
    test_prefill.check_linear(TensorType.Q4_K, 70, 1280, amx)
    test_prefill.check_linear(TensorType.BF16, 16, 7, amx)
    test_prefill.check_rows(amx, 600)


def test_steps_of_both_phases(amx: str) -> None:
    test_prefill.test_a_step_of_both_phases(amx)
    test_prefill.check_gated(amx, (TensorType.Q4_K, TensorType.Q6_K))
    test_prefill.check_experts(amx, test_prefill.Q8)


def test_a_model(amx: str, tile_unit: TileUnit, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", types="Q4_K", dim=256)
    before, scores = tile_unit.counts, []
    for isa in ("scalar", amx):
        with LLM(path, threads=2, isa=isa) as llm:
            scores.append(llm.score("the rain in the night " * 9).logprobs)
    assert scores[1] == pytest.approx(scores[0], abs=0.5)
    assert scores[1] != scores[0]
    assert HAS_TILES or (tile_unit.counts - before)["tdpbf16ps"] > 1000


def test_the_probe(amx: str, tile_unit: TileUnit) -> None:
    before = tile_unit.counts
    assert _core.probe_flops(amx, 2, "16bit", 0.01) > 0
    counts = tile_unit.counts - before
    if HAS_TILES:
        assert counts.total() == 0
        return
    rounds, left = divmod(counts["tdpbf16ps"], 4)
    calls = counts["ldtilecfg"]
    assert rounds >= 256 * calls and left == 0  # at least so many a call, on each thread
    assert (counts["tilerelease"], counts["tilestored"], counts["tilezero"]) == (calls, calls, 6 * calls)
