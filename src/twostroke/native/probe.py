"""The core's probes of this machine. Owns nothing but the call: what to probe, and for how long, is decided above.

A probe occupies all its threads for as long as it runs; the GIL is free meanwhile.
"""

from twostroke.errors import ConfigError, NotEnoughMemoryError
from twostroke.native import _core

PROBE_VERSION = 1  # raised when csrc/probe.cpp or its kernels measure differently: what was measured before is void


def probe_isas(isa: str | None = None) -> tuple[str, ...]:
    """The instruction sets to probe: every usable one, slowest first, or the one named.

    Raises ConfigError for one that this machine lacks.
    """
    available = tuple(_core.available_isas())
    if isa is None:
        return available
    if isa not in available:
        raise ConfigError(f"isa: this machine has no {isa!r} (it has {', '.join(available)})")
    return (isa,)


def probe_read(isa: str, num_threads: int, num_bytes: int, prefetch_bytes: int, seconds: float) -> float:
    """Bytes per second of reading `num_bytes` over and over, divided among the threads.

    The better of two kernels: without software prefetch, and prefetching `prefetch_bytes` ahead. Takes about `seconds`,
    allocation included, or as long as two passes of each; a set that cannot be filled in half of it is read as far as
    it was. Raises NotEnoughMemoryError where the set cannot be allocated.
    """
    try:
        return _core.probe_read(isa, num_threads, num_bytes, prefetch_bytes, seconds)
    except MemoryError:
        raise NotEnoughMemoryError(f"probe: no memory for a working set of {num_bytes} bytes") from None


def probe_flops(isa: str, num_threads: int, kind: str, seconds: float) -> float:
    """FLOPs per second from registers; `kind` is "f32", or "16bit" (low-bit weights, 16-bit activations)."""
    return _core.probe_flops(isa, num_threads, kind, seconds)
