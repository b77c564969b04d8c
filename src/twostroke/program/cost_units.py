"""How many of each unit a step has. Owns the counting; the coefficients are the cost rules' (see `cost`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from twostroke.program.cost_terms import Scope, Unit
from twostroke.program.phase import Phase


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """Tokens `start` .. `start + length` of one request, `num_outputs` of which give outputs, all of one phase."""

    start: int
    length: int
    num_outputs: int
    phase: Phase = field(default=Phase.PREFILL, kw_only=True)


Chunks = tuple[ChunkShape, ...]


def measure(unit: Unit, scope: Scope, chunks: Chunks) -> float:
    """How many of a unit a step has. A window or a segment bounds the keys a row sees.

    Of E experts of which each of n tokens chooses k, uniformly and independently, E (1 - (1 - k/E)^n) are expected to
    be chosen by at least one.
    """
    if unit in _OF_PHASE:
        phase, unit = _OF_PHASE[unit]
        return measure(unit, scope, tuple(chunk for chunk in chunks if chunk.phase is phase))
    if isinstance(scope, tuple):
        num_experts, top_k = scope
        return num_experts * (1 - (1 - top_k / num_experts) ** sum(chunk.length for chunk in chunks))
    if unit in _OF_CONTEXT:
        return float(sum(_OF_CONTEXT[unit](chunk, scope) for chunk in chunks))
    return float(_PLAIN[unit](chunks))


_PLAIN: Mapping[Unit, Callable[[Chunks], int]] = {
    Unit.STEP: bool,
    Unit.OUTPUT_STEP: lambda chunks: any(chunk.num_outputs for chunk in chunks),
    Unit.ROW: lambda chunks: sum(chunk.length for chunk in chunks),
    Unit.OUTPUT: lambda chunks: sum(chunk.num_outputs for chunk in chunks),
    Unit.CHUNK: len,
}
_OF_PHASE: Mapping[Unit, tuple[Phase, Unit]] = {
    Unit.PREFILL_ROW: (Phase.PREFILL, Unit.ROW),
    Unit.PREFILL_ROW_CONTEXT: (Phase.PREFILL, Unit.ROW_CONTEXT),
    Unit.PREFILL_CHUNK_CONTEXT: (Phase.PREFILL, Unit.CHUNK_CONTEXT),
    Unit.DECODE_ROW: (Phase.DECODE, Unit.ROW),
    Unit.DECODE_ROW_CONTEXT: (Phase.DECODE, Unit.ROW_CONTEXT),
}


def _row_context(chunk: ChunkShape, window: int | None) -> int:
    end = chunk.start + chunk.length
    if window is None or end <= window:
        return (chunk.start + 1 + end) * chunk.length // 2
    growing = max(0, window - chunk.start)  # rows that still see fewer keys than the window
    return (chunk.start + 1 + chunk.start + growing) * growing // 2 + (chunk.length - growing) * window


def _chunk_context(chunk: ChunkShape, window: int | None) -> int:
    end = chunk.start + chunk.length
    return end if window is None else min(end, window + chunk.length - 1)


def _row_segment(chunk: ChunkShape, segment: int | None) -> int:
    size = segment or 1

    def before(position: int) -> int:
        """Keys seen by all rows before a position."""
        full, rest = divmod(position, size)
        return full * (size * (size + 1) // 2) + rest * (rest + 1) // 2

    return before(chunk.start + chunk.length) - before(chunk.start)


def _chunk_segment(chunk: ChunkShape, segment: int | None) -> int:
    return chunk.start + chunk.length - chunk.start // (segment or 1) * (segment or 1)


_OF_CONTEXT: Mapping[Unit, Callable[[ChunkShape, int | None], int]] = {
    Unit.ROW_CONTEXT: _row_context,
    Unit.CHUNK_CONTEXT: _chunk_context,
    Unit.ROW_SEGMENT: _row_segment,
    Unit.CHUNK_SEGMENT: _chunk_segment,
}
