"""`bench MODEL`: the table and the JSON object of its cells. Owns their words; every figure is a cell's."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence

import click

from twostroke.bench.cell import Cell, Pass
from twostroke.bench.model_bench import cells
from twostroke.bench.model_config import ModelBenchConfig
from twostroke.cli.fetch_progress import fetch_progress
from twostroke.cli.figures import bytes_text, table


def run_model_bench(config: ModelBenchConfig, as_json: bool) -> None:
    """Measures and prints; Ctrl-C prints what was measured and exits with 130. Raises what `cells` raises."""
    found: list[Cell] = []
    stopped = False
    try:
        with fetch_progress() as progress:
            for cell in cells(config, progress):
                found.append(cell)
                click.echo(_progress_line(cell, len(found), config), err=True)
    except KeyboardInterrupt:
        stopped = True
    if as_json:
        click.echo(json.dumps({"model": config.model, "cells": [cell.fields() for cell in found]}))
    elif found:
        click.echo("\n".join(_lines(config, found)))
    if stopped:
        sys.exit(130)


def _progress_line(cell: Cell, number: int, config: ModelBenchConfig) -> str:
    count = len(config.scenarios) * sum(1 if kind == "f64" else len(config.kv_types) for kind in config.weight_types)
    return f"{number} of {count}: weights {cell.weights}, batch {cell.scenario.batch}, depth {cell.scenario.depth:,}"


def _lines(config: ModelBenchConfig, found: Sequence[Cell]) -> Iterator[str]:
    columns = [_columns(cell) for cell in found]
    shown = [name for name in columns[0] if name in _ALWAYS or any(row[name] != columns[0][name] for row in columns)]
    yield from table([shown, *([row[name] for name in shown] for row in columns)])
    yield ""
    first = found[0]
    same = [f"{name} {columns[0][name]}" for name in columns[0] if name not in shown and columns[0][name]]
    yield (
        f"{config.model}, {', '.join(same)}; {first.threads} threads, {first.isa}. Medians of {len(first.passes)}"
        " passes with the whole spread; random prompts, no speculation; tok/s of all requests together."
    )
    yield from _roof_lines(found)


_ALWAYS = ("prefill tok/s", "spread", "roof", "decode tok/s", "spread ", "roof ", "per token", "TTFT", "python")


def _columns(cell: Cell) -> dict[str, str]:
    asked, prefill, decode = cell.scenario, cell.prefill_reached, cell.decode_reached
    moved = cell.decode_bytes_per_token
    return {
        "weights": cell.weights,
        "kv": cell.kv,
        "depth": f"{asked.depth:,}",
        "batch": f"{asked.batch:,}",
        "prompt": f"{asked.prompt_tokens:,}",
        "answer": f"{asked.gen_tokens:,}",
        "prefill tok/s": _number(cell.prefill_tok_s),
        "spread": _spread(cell, lambda one: one.prefill_tok_s),
        "roof": _percent(None if prefill is None else prefill.roof_fraction),
        "TTFT": "" if cell.ttft_s is None else f"{1e3 * cell.ttft_s:,.0f} ms",
        "decode tok/s": _number(cell.decode_tok_s, 1),
        "spread ": _spread(cell, lambda one: one.decode_tok_s),
        "roof ": _percent(None if decode is None else decode.roof_fraction),
        "per token": "" if moved is None else bytes_text(moved),
        "python": _percent(cell.python_fraction, 1),
        "weights are": bytes_text(cell.weight_bytes),
        "perplexity": _number(cell.perplexity, 3),
    }


def _roof_lines(found: Sequence[Cell]) -> Iterator[str]:
    """What the percentages are of."""
    for cell in found:
        if cell.hardware is None:
            continue
        read = cell.hardware.read_bandwidth[0][1]
        kinds = ", ".join(f"{rate / 1e9:,.0f} GFLOP/s {kind}" for kind, rate in sorted(cell.hardware.flops.items()))
        yield (
            f"roof: reading {cell.weights} weights {read / 1e9:.1f} GB/s; {kinds}."
            " A phase is compared with the one that binds it."
        )
        return


def _spread(cell: Cell, of: Callable[[Pass], float | None]) -> str:
    """From least to most, as a part of the least."""
    spread = cell.spread(of)
    return "" if spread is None else f"{spread[1] / spread[0] - 1:.0%}"


def _number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _percent(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:.{digits}%}"
