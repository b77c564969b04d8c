"""How close does attention come to this machine's limits, by context? One row, as in decode, and a chunk of a prompt.

    python benchmarks/attention.py [--contexts 512,2048,8192] [--heads 12 --kv-heads 2 --head-dim 128] [--layers 28]

The default shape is Qwen2.5-Coder 1.5B's. One row reads the whole cache: GB/s, beside the rate at which a buffer of
that size can be read. A chunk multiplies: FLOP/s of float32, 4 for each element of a query and visible key, beside
what registers reach. The cache is filled with made-up numbers, not by computing them. The last line is JSON.
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any

import click
import numpy as np
from synthetic import MadeUpWeights, batch_of, step_seconds

from twostroke.native.executor import BLOCK_TOKENS, ExecutorConfig, NativeExecutor, pick_isa
from twostroke.native.probe import probe_flops, probe_read
from twostroke.native.threads import choose_threads
from twostroke.program.builder import Builder
from twostroke.program.phase import Phase
from twostroke.program.program import Program
from twostroke.program.values import CacheSpec
from twostroke.weights.tensor_types import TensorType

PREFETCH_BYTES = 4096


def layers_of(options: argparse.Namespace) -> Program:
    """Each layer's queries are the output of the one before; keys and values are looked up."""
    b = Builder()
    sizes = (("q", options.heads), ("k", options.kv_heads), ("v", options.kv_heads))
    x, k, v = (b.embed(name, 16, heads * options.head_dim) for name, heads in sizes)
    for layer in b.layers(options.layers):
        x = b.attention(x, k, v, CacheSpec(layer / "cache", options.kv_heads, options.head_dim))
    b.output("logits", b.output_rows(x))
    return b.build()


def filled(options: argparse.Namespace, context: int) -> NativeExecutor:
    program = layers_of(options)
    blocks = -(-(context + 1) // BLOCK_TOKENS)
    config = ExecutorConfig(options.threads, (blocks,), context + 1, options.chunk, isa=options.isa)
    executor = NativeExecutor(program, MadeUpWeights(program, TensorType.F32), config)
    numbers = np.random.default_rng(4).standard_normal(executor.block_bytes // 2).astype(np.float16)
    for block in range(blocks):
        executor.import_blocks([block], numbers.view(np.uint8))
    return executor


def measure(options: argparse.Namespace, context: int, roof_flops: float) -> Iterator[dict[str, Any]]:
    """Two records: of one row after `context` others, and of the last `--chunk` rows of them."""
    executor = filled(options, context)
    size = 2 * 2 * options.kv_heads * options.head_dim * options.layers * context
    roof_bytes = probe_read(options.isa, options.threads, size, PREFETCH_BYTES, options.seconds)
    chunk = min(options.chunk, context)
    for rows, start in ((1, context), (chunk, context - chunk)):
        phase = Phase.DECODE if rows == 1 else Phase.PREFILL
        seconds = step_seconds(executor, batch_of(executor, rows, start, phase), options.seconds)
        keys = sum(range(start + 1, start + rows + 1))
        flops = 4 * options.heads * options.head_dim * options.layers * keys
        record = {"context": context, "rows": rows, "seconds": seconds, "kv_bytes": size}
        record |= {"byte_s": size / seconds, "flop_s": flops / seconds}
        yield record | {"roof_byte_s": roof_bytes, "roof_flop_s": roof_flops}


def show(record: dict[str, Any]) -> None:
    what, unit = ("byte", "GB/s") if record["rows"] == 1 else ("flop", "GFLOP/s")
    rate, roof = record[f"{what}_s"], record[f"roof_{what}_s"]
    click.echo(
        f"context {record['context']:6}{record['rows']:5} rows{record['seconds'] * 1e3:9.2f} ms"
        f"{rate / 1e9:8.1f} of {roof / 1e9:5.1f} {unit} ({rate / roof:.0%})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", default="512,2048,8192")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--chunk", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--isa")
    options = parser.parse_args()
    options.threads, options.isa = choose_threads(options.threads).num_threads, pick_isa(options.isa)
    roof_flops = probe_flops(options.isa, options.threads, "f32", options.seconds)
    found = []
    for context in (int(number) for number in options.contexts.split(",")):
        for record in measure(options, context, roof_flops):
            show(record)
            found.append(record)
    click.echo(json.dumps({"threads": options.threads, "isa": options.isa, "cells": found}))


if __name__ == "__main__":
    main()
