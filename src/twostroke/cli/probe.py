"""`twostroke probe`: this machine's roofs. Owns the command's words and table; measuring is the roofline's."""

import json
import time
from typing import Any

import click

from twostroke.cli.figures import bytes_text, count_text, table
from twostroke.native.threads import ThreadChoice, choose_threads
from twostroke.roofline.hardware import HardwareSpec
from twostroke.roofline.machine import cache_bytes
from twostroke.roofline.probe import probe


@click.command("probe")
@click.option("--threads", type=int, help="Threads to measure with; default: one a physical core allowed.")
@click.option("--isa", help="Instruction set (scalar, avx2, avx512, amx); default: the best one here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(threads: int | None, isa: str | None, as_json: bool) -> None:
    """Measure this machine's roofs: read bandwidth by working set, FLOP/s by type.

    Takes about ten seconds. Arithmetic is the best of the last 30 days, reading as it is now: neighbours on
    a shared machine change it. `plan` counts on both, and its ranges hold the slowest and the fastest
    reading seen; `run` compares with the bandwidth at which the model's own weights can be read.
    """
    choice = choose_threads(threads)
    start = time.perf_counter()
    hardware = probe(choice.num_threads, isa)
    seconds = time.perf_counter() - start
    click.echo(json.dumps(_record(hardware, choice, seconds)) if as_json else _table(hardware, choice))


def _record(hardware: HardwareSpec, choice: ThreadChoice, seconds: float) -> dict[str, Any]:
    return {
        "hardware": hardware.name,
        "isa": hardware.isa,
        "threads": choice.num_threads,
        "threads_reason": choice.reason,
        "memory_bytes": hardware.memory_bytes,
        "read_bandwidth": [
            {"working_set_bytes": size, "level": _level(size, choice), "byte_s": rate}
            for size, rate in hardware.read_bandwidth
        ],
        "memory_span": list(hardware.memory_span),
        "flop_s": dict(hardware.flops),
        "probed_at": hardware.probed_at,
        "seconds": seconds,
    }


def _table(hardware: HardwareSpec, choice: ThreadChoice) -> str:
    memory = f", {bytes_text(hardware.memory_bytes)}" if hardware.memory_bytes else ""
    largest = hardware.read_bandwidth[-1][0]
    reads = [
        (bytes_text(size), _level(size, choice), f"{count_text(rate)}B/s") for size, rate in hardware.read_bandwidth
    ]
    arithmetic = [(kind, f"{count_text(rate)}FLOP/s") for kind, rate in sorted(hardware.flops.items())]
    ridge = (
        f"ridge point {hardware.ridge_point(largest):.1f} FLOP/byte: below it memory is the limit, above it arithmetic"
    )
    lines = [f"{hardware.name}, {hardware.isa}{memory}", choice.reason, ""]
    lines += table([("working set", "in", "read"), *reads], left=0)
    if hardware.memory_span != (1.0, 1.0):
        now = hardware.read_bandwidth[-1][1]
        slow, fast = (f"{count_text(share * now)}B/s" for share in hardware.memory_span)
        lines += ["", f"the largest set in the last 30 days: {slow} at the slowest, {fast} at the fastest"]
    return "\n".join([*lines, "", *table(arithmetic), "", ridge])


def _level(working_set_bytes: int, choice: ThreadChoice) -> str:
    """The innermost cache that holds the set, divided among the threads; "memory" where none does."""
    for level in (1, 2, 3):
        if working_set_bytes <= cache_bytes(level, choice.cpus):
            return f"L{level}"
    return "memory"
