"""The exported cost terms give the cost model's numbers to the bit, by an evaluation that knows only docs/cost.md."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.golden_families import FOLDER, NAMES

from twostroke.models.hf_config import config_from_hf
from twostroke.models.registry import build_program
from twostroke.program.cost import ChunkShape, CostModel, Storage, kv_bytes, state_bytes, total_weight_bytes
from twostroke.program.cost_export import cost_fields
from twostroke.program.cost_terms import Resource, Unit
from twostroke.program.passes import fuse
from twostroke.program.phase import Phase
from twostroke.program.program import Program

PAGE = (Path(__file__).parents[2] / "docs" / "cost.md").read_text()
STEPS = [
    [ChunkShape(0, 17, 1), ChunkShape(21, 1, 1, phase=Phase.DECODE), ChunkShape(9, 40, 0)],
    [ChunkShape(start, 1, 1, phase=Phase.DECODE) for start in (3, 15, 16, 100)],
    [ChunkShape(5, 3, 0, phase=Phase.DECODE)],
    [],
]


def program_of(name: str) -> Program:
    return fuse(build_program(config_from_hf(json.loads((FOLDER / name / "config.json").read_text()))))


def storage_of(program: Program) -> Storage:
    return Storage({name: 4.5 + index % 3 for index, name in enumerate(program.weights)}, 8.5, 32.0, 16.0)


def rows_of(chunks: list[dict[str, Any]]) -> list[int]:
    return [row for chunk in chunks for row in range(chunk["start"], chunk["start"] + chunk["length"])]


def units_of(unit: str, scope: Any, chunks: list[dict[str, Any]]) -> float:
    """Row by row, as the page says it."""
    for phase in ("prefill", "decode"):
        if unit.startswith(f"{phase}_"):
            return units_of(unit[len(phase) + 1 :], scope, [chunk for chunk in chunks if chunk["phase"] == phase])
    rows = rows_of(chunks)
    ends = [(chunk["start"], chunk["length"], chunk["start"] + chunk["length"]) for chunk in chunks]
    counts: Mapping[str, Any] = {
        "step": lambda: min(1, len(chunks)),
        "output_step": lambda: int(any(chunk["num_outputs"] for chunk in chunks)),
        "row": lambda: len(rows),
        "output": lambda: sum(chunk["num_outputs"] for chunk in chunks),
        "chunk": lambda: len(chunks),
        "row_context": lambda: sum(min(row + 1, scope or row + 1) for row in rows),
        "chunk_context": lambda: sum(min(end, (scope or end) + length - 1) for _, length, end in ends),
        "row_segment": lambda: sum(row % scope + 1 for row in rows),
        "chunk_segment": lambda: sum(end - start // scope * scope for start, _, end in ends),
        "experts": lambda: scope[0] * (1 - (1 - scope[1] / scope[0]) ** len(rows)),
    }
    return float(counts[unit]())


@pytest.mark.parametrize("name", NAMES)
def test_exported_terms_give_the_same_numbers(name: str) -> None:
    program = program_of(name)
    storage = storage_of(program)
    fields = json.loads(json.dumps(cost_fields(program, storage)))
    for chunks in STEPS:
        shapes = [
            {"start": c.start, "length": c.length, "num_outputs": c.num_outputs, "phase": str(c.phase)} for c in chunks
        ]
        totals = dict.fromkeys(map(str, Resource), 0.0)
        for term in fields["terms"]:
            totals[term["resource"]] += term["coefficient"] * units_of(term["unit"], term["scope"], shapes)
        cost = CostModel(program, storage).step(chunks)
        assert totals == {resource: getattr(cost, resource) for resource in totals}


@pytest.mark.parametrize("name", NAMES)
def test_exported_caches_and_weights_add_up(name: str) -> None:
    program = program_of(name)
    storage = storage_of(program)
    fields = cost_fields(program, storage)
    for tokens in (1, 15, 16, 40):
        kept = [min(tokens, group["window"] or tokens, group["segment"] or tokens) for group in fields["caches"]]
        elements = sum(n * group["elements_per_token"] for n, group in zip(kept, fields["caches"], strict=True))
        assert elements * fields["bits"]["kv"] / 8 == kv_bytes(program, storage, tokens)
    states = sum(group["state_elements"] for group in fields["caches"])
    assert states * fields["bits"]["state"] / 8 == state_bytes(program, storage)
    assert sum(weight["bytes"] for weight in fields["weights"]) == total_weight_bytes(program, storage)
    cost = CostModel(program, storage).step(STEPS[1])
    shapes = [{"start": c.start, "length": 1, "num_outputs": 1, "phase": "decode"} for c in STEPS[1]]
    read = sum(
        read["bytes_per_unit"] * units_of(read["unit"], read["scope"], shapes)
        for weight in fields["weights"]
        for read in weight["reads"]
    )
    assert read == pytest.approx(cost.weight_bytes, rel=1e-12)


def test_the_page_names_every_unit() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert {str(unit) for unit in Unit if not str(unit).startswith(("prefill_", "decode_"))} <= named
    assert {"prefill_row", "decode_row"} < named
