"""Probing this machine's roofs. Owns what is measured, for how long, and that it is kept; the core does the measuring.

A roof is the best of several kernels; of arithmetic, the best of 30 days. Reading is as it was last, for memory that
neighbours share changes by the minute; how slow and how fast it was in these 30 days is kept beside. Reading is probed
in the order in which decode reads, a whole working set again and again, so that caches help the roof as much as the
model. Probing keeps every thread busy: do it when nothing waits for an answer. Only a probe of the machine itself needs
memory of its own, up to 1 GiB.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from twostroke.native.probe import PROBE_VERSION, probe_flops, probe_isas, probe_read
from twostroke.roofline.hardware import ARITHMETIC, HardwareSpec
from twostroke.roofline.machine import cpu_model
from twostroke.roofline.memory import available_memory, total_memory
from twostroke.roofline.roofs import Measured, RoofFile, Roofs

MIB = 2**20
CURVE = tuple(size * MIB for size in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
LARGEST_SET = CURVE[-1]  # a larger one is no slower to read, and takes long to fill
PREFETCH_BYTES = 4096
FLOPS_SHARE = 0.15  # of the time


def probe(
    num_threads: int,
    isa: str | None = None,
    *,
    working_sets: Sequence[int] = CURVE,
    budget_s: float = 10.0,
    file: RoofFile | None = None,
) -> HardwareSpec:
    """Measure read bandwidth at these working sets (bytes) and FLOP/s anew; returns all that is known of the machine.

    Takes about `budget_s`. `isa` is the instruction set, the best one by default. What was measured is kept in `file`
    (default: the user's cache). Sets larger than half the free memory are read at that size.

    Raises ConfigError for an instruction set that this machine lacks.
    """
    file = file or RoofFile()
    isas = probe_isas(isa)
    measured = _measure(num_threads, isas, working_sets, ARITHMETIC, budget_s, file.now())
    return _spec(file.raise_to(machine_key(num_threads, isas[-1]), measured), num_threads, isas[-1])


def known_or_probed(num_threads: int, isa: str | None = None, *, file: RoofFile | None = None) -> HardwareSpec:
    """What is kept of this machine; where it does not suffice, as `probe`.

    Raises ConfigError for an instruction set that this machine lacks.
    """
    file = file or RoofFile()
    best = probe_isas(isa)[-1]
    known = file.load(machine_key(num_threads, best))
    large = any(size >= LARGEST_SET // 2 for size in known.reads)
    if large and all(kind in known.flops for kind in ARITHMETIC):
        return _spec(known, num_threads, best)
    return probe(num_threads, isa, file=file)


def roofs_of_model(
    read: Callable[[float], float],
    working_set_bytes: int,
    num_threads: int,
    isa: str | None = None,
    *,
    budget_s: float = 1.0,
    refresh: bool = False,
    file: RoofFile | None = None,
) -> HardwareSpec:
    """The roofs of a model that is loaded: reading is measured on its own weights, arithmetic is kept from earlier.

    `read(seconds)` reads all weights again and again for so long and returns bytes per second. The same number of bytes
    elsewhere may be faster or slower to read, on a virtual machine by half; so this is measured anew each time.
    `refresh` measures arithmetic again too and keeps the higher: for a run that came out above its roof.

    Raises ConfigError for an instruction set that this machine lacks.
    """
    file = file or RoofFile()
    isas = probe_isas(isa)
    key = machine_key(num_threads, isas[-1])
    known = file.load(key)
    kinds = [kind for kind in ARITHMETIC if refresh or kind not in known.flops]
    if kinds:
        known = file.raise_to(key, _measure(num_threads, isas, (), kinds, 3.0, file.now()))
    own = {working_set_bytes: Measured(read(budget_s), file.now())}
    return _spec(Roofs(own, known.flops), num_threads, isas[-1])


def machine_key(num_threads: int, isa: str) -> str:
    """What roofs belong to: they are another machine's when any of it changes."""
    return f"{cpu_model()} | {isa} | {num_threads} threads | probe {PROBE_VERSION}"


def _measure(
    num_threads: int,
    isas: Sequence[str],
    sizes: Sequence[int],
    kinds: Sequence[str],
    budget_s: float,
    at: datetime,
) -> Roofs:
    """FLOP/s is the best of the two best instruction sets (wide vectors may lower the clock); reading uses the best."""
    rivals = isas[-2:]
    flops_s = budget_s * FLOPS_SHARE / (len(ARITHMETIC) * len(rivals))
    flops = {kind: Measured(max(probe_flops(isa, num_threads, kind, flops_s) for isa in rivals), at) for kind in kinds}
    room = available_memory() // 2
    sizes = sorted({max(1, min(size, room)) for size in sizes})
    weights = [0.25 + size / LARGEST_SET for size in sizes]  # a large set takes time to fill
    reads: dict[int, Measured] = {}
    for size, weight in zip(sizes, weights, strict=True):
        seconds = budget_s * (1 - FLOPS_SHARE) * weight / sum(weights)
        reads[size] = Measured(probe_read(isas[-1], num_threads, size, PREFETCH_BYTES, seconds), at)
    return Roofs(reads, flops)


def _spec(roofs: Roofs, num_threads: int, isa: str) -> HardwareSpec:
    oldest = roofs.oldest()
    return HardwareSpec(
        name=cpu_model(),
        read_bandwidth=roofs.envelope(),
        memory_span=roofs.memory_span(),
        flops={kind: measured.rate for kind, measured in roofs.flops.items()},
        memory_bytes=total_memory(),
        isa=isa,
        num_threads=num_threads,
        probed_at=oldest.isoformat(timespec="seconds") if oldest else None,
    )
