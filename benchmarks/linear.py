"""How close do the linear kernels come to this machine's limits, by type of weights and number of rows?

    python benchmarks/linear.py [--types Q4_0,Q4_K,Q6_K] [--rows 1,16,512] [--dim 2048] [--mib 96] [--isa avx2]
                                [--phase prefill]

Up to 16 rows are generated rows and more are a prompt's, unless --phase says which.

A chain of square matrices of one type, `--mib` of them, is multiplied by as many rows. Of few rows reading limits:
GB/s, beside the rate at which these very bytes can be read. Of many, arithmetic: FLOP/s, beside what the same
instructions reach from registers. The last line is JSON.
"""

import argparse
import json
from typing import Any

import click
from synthetic import MadeUpWeights, batch_of, step_seconds

from twostroke.native.executor import ExecutorConfig, NativeExecutor, pick_isa
from twostroke.native.probe import probe_flops
from twostroke.native.threads import choose_threads
from twostroke.program.builder import Builder
from twostroke.program.phase import Phase
from twostroke.program.program import Program
from twostroke.weights.tensor_types import TensorType

FLOATS = (TensorType.F32, TensorType.F16)
FEW_ROWS = 16


def chain(dim: int, count: int) -> Program:
    b = Builder()
    x = b.embed("table", 16, dim)
    for layer in b.layers(count):
        x = b.linear(x, layer / "matrix", dim)
    b.output("logits", b.output_rows(x))
    return b.build()


def measure(kind: TensorType, rows: list[int], options: argparse.Namespace) -> list[dict[str, Any]]:
    """A record for each number of rows; rates in bytes and FLOPs a second."""
    values = options.dim * options.dim
    count = max(1, round(options.mib * 2**20 / (values // kind.block_size * kind.block_bytes)))
    program = chain(options.dim, count)
    threads, isa = options.threads, options.isa
    config = ExecutorConfig(threads, (), max(rows), max(rows), isa=isa)
    executor = NativeExecutor(program, MadeUpWeights(program, kind), config)
    size = executor.weight_bytes - 16 * options.dim * 4  # but for the table
    roof_bytes = executor.probe_weights(options.seconds)
    roof_flops = probe_flops(isa, threads, "f32" if kind in FLOATS else "16bit", options.seconds)
    found = []
    for number in rows:
        phase = Phase(options.phase or ("decode" if number <= FEW_ROWS else "prefill"))
        seconds = step_seconds(executor, batch_of(executor, number, 0, phase), options.seconds)
        record: dict[str, Any] = {"type": kind.name, "phase": phase, "rows": number, "seconds": seconds}
        record |= {"weight_bytes": size, "byte_s": size / seconds, "flop_s": 2 * number * values * count / seconds}
        found.append(record | {"roof_byte_s": roof_bytes, "roof_flop_s": roof_flops})
    return found


def show(record: dict[str, Any]) -> None:
    bytes_share, flops_share = (record[f"{what}_s"] / record[f"roof_{what}_s"] for what in ("byte", "flop"))
    click.echo(
        f"{record['type']:8}{record['phase']:8}{record['rows']:5} rows{record['seconds'] * 1e3:9.2f} ms"
        f"{record['byte_s'] / 1e9:8.1f} of {record['roof_byte_s'] / 1e9:5.1f} GB/s ({bytes_share:4.0%})"
        f"{record['flop_s'] / 1e9:8.0f} of {record['roof_flop_s'] / 1e9:5.0f} GFLOP/s ({flops_share:4.0%})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="Q4_0,Q4_1,Q4_K,Q5_K,Q6_K,Q8_0,BF16,F32")
    parser.add_argument("--rows", default="1,4,16,64,512")
    parser.add_argument("--dim", type=int, default=2048)
    parser.add_argument("--mib", type=float, default=96.0)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--isa")
    parser.add_argument("--phase", choices=list(Phase))
    options = parser.parse_args()
    options.threads, options.isa = choose_threads(options.threads).num_threads, pick_isa(options.isa)
    found = []
    for name in options.types.split(","):
        for record in measure(TensorType[name.upper()], [int(number) for number in options.rows.split(",")], options):
            show(record)
            found.append(record)
    click.echo(json.dumps({"threads": options.threads, "isa": options.isa, "cells": found}))


if __name__ == "__main__":
    main()
