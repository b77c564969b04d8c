"""How right is the planner on published measurements, and which constants does it need?

    python benchmarks/planning.py TABLE.csv [--write] [--docs FILE]

Prints errors by stratum, each case predicted by constants fitted without its hardware; `--write` replaces the fitted
constants in src/twostroke/roofline/efficiency.toml; `--docs` writes the tables. The last line is JSON. TABLE has the
columns source, model, hardware, mem_bw_gbs, weights_format, bits_per_weight, batch, prompt_len, gen_len,
prefill_tok_s, decode_tok_s, note, engine, metric, moe.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from planning_fit import ENGINES, Array, Programs, features, fit, left_out
from planning_report import Report, write_constants, write_tables
from planning_rows import Case, read_cases
from planning_strata import Score, score

from twostroke.models.registry import build_program
from twostroke.program.passes import fuse
from twostroke.roofline.hardware_catalogue import load_hardware
from twostroke.roofline.memory_sum import Room, memory_sum
from twostroke.roofline.model_catalogue import load_models
from twostroke.roofline.planned_model import PlannedModel

_LEAST_CASES = 3


@dataclass(frozen=True)
class Fitted:
    """A class: its cases, its constants from all of them but outliers, and held-out predictions of all, in seconds."""

    name: str
    cases: Sequence[Case]
    factors: Array
    measured: Array
    held_out: Array


def fit_classes(cases: Sequence[Case], programs: Programs) -> dict[str, Fitted]:
    """Every class that the cases have, an engine on a kind of hardware. Engines with few cases count as llama.cpp."""
    classes: dict[str, list[Case]] = {}
    for case in cases:
        engine = case.engine if case.engine in ENGINES else "llama.cpp"
        classes.setdefault(f"{engine}/{case.kind}", []).append(case)
    return {name: fitted for name, own in sorted(classes.items()) if (fitted := _fit_class(name, own, programs))}


def _fit_class(name: str, own: Sequence[Case], programs: Programs) -> Fitted | None:
    rows, measured = features(own, programs), np.array([case.seconds for case in own])
    usable = np.array([not case.outlier and case.engine in ENGINES for case in own])
    if usable.sum() < _LEAST_CASES:
        return None
    kept = [case for case, use in zip(own, usable, strict=True) if use]
    factors = fit(rows[usable], measured[usable])
    held_out = rows @ factors
    held_out[usable] = left_out(kept, rows[usable], measured[usable])
    return Fitted(name, own, factors, measured, held_out)


def scores(classes: Iterable[Fitted]) -> list[Score]:
    """Every case, as it was predicted without its hardware."""
    return score(
        [
            (case, float(measured / predicted))
            for fitted in classes
            for case, measured, predicted in zip(fitted.cases, fitted.measured, fitted.held_out, strict=True)
        ]
    )


def fits_by_plan(case: Case) -> bool | None:
    """Whether the planner says that a case's model and cache fit on its device."""
    config = case.model.config()
    program = fuse(build_program(config))
    bits = {w.name: case.bits if len(w.shape) > 1 else 32.0 for w in program.weights.values()}
    model = PlannedModel(case.model.name, config, program, "q4_k_m" if case.bits < 16 else "f16", bits, "")
    room = Room("llama.cpp", case.kind, case.device.memory_bytes, ENGINES["llama.cpp"].chunk_tokens)
    return memory_sum(model, room, context=case.prompt + case.depth + case.gen, batch=1, kv="f16").fits


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--write", action="store_true", help="replace the constants in efficiency.toml")
    parser.add_argument("--docs", type=Path, help="write the tables of docs/planning.md between their marks")
    options = parser.parse_args()
    cases, dropped, fits = read_cases(options.table, load_hardware(), load_models())
    classes = fit_classes(cases, Programs())
    right = sum(fits_by_plan(case) is fitted for case, fitted in fits)
    report = Report.of(scores(classes.values()), dropped, (right, len(fits)))
    print("\n".join(report.lines()))  # noqa: T201
    if options.write:
        write_constants(classes, report.scores)
    if options.docs:
        write_tables(options.docs, report)
    print(json.dumps(report.fields()))  # noqa: T201


if __name__ == "__main__":
    main()
