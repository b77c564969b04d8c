"""What cost is made of: terms "coefficient x bits x unit". Owns resources and units; no rule, no figure."""

from dataclasses import dataclass
from enum import StrEnum

from twostroke.program.values import Rows, Value, Weight

Scope = int | tuple[int, int] | None


class Resource(StrEnum):
    """What a step uses. KV_BYTES are those of all that is kept of requests, latents and states too."""

    FLOPS = "flops"
    WEIGHT_BYTES = "weight_bytes"
    KV_BYTES = "kv_bytes"
    ACTIVATION_BYTES = "activation_bytes"


class Unit(StrEnum):
    """What a coefficient is multiplied by."""

    STEP = "step"  # 1
    OUTPUT_STEP = "output_step"  # 1 where any output row was asked for
    ROW = "row"  # tokens of the step
    OUTPUT = "output"  # output rows of the step
    ROW_CONTEXT = "row_context"  # sum over rows of the keys each one sees, its own included
    CHUNK_CONTEXT = "chunk_context"  # sum over chunks of the cached keys any of its rows sees
    ROW_SEGMENT = "row_segment"  # as ROW_CONTEXT, of keys in the row's own segment
    CHUNK_SEGMENT = "chunk_segment"  # as CHUNK_CONTEXT, of keys in the segments of its rows
    CHUNK = "chunk"  # chunks of the step: requests that have rows in it
    EXPERTS = "experts"  # expected number of distinct experts that the step's tokens choose
    PREFILL_ROW = "prefill_row"  # as ROW, ROW_CONTEXT and CHUNK_CONTEXT, of the chunks of one phase
    PREFILL_ROW_CONTEXT = "prefill_row_context"
    PREFILL_CHUNK_CONTEXT = "prefill_chunk_context"
    DECODE_ROW = "decode_row"
    DECODE_ROW_CONTEXT = "decode_row_context"


OF_CONTEXT = frozenset(unit for unit in Unit if unit.value.endswith(("context", "segment")))
"""Units that grow with what a step's rows see."""


@dataclass(frozen=True, slots=True)
class Term:
    """`count` per `unit`; for bytes, `count` elements of the storage named `storage` ("kv", "state", "activation", or a
    weight).

    `scope` completes some units: the window or the segment of a context, (num_experts, top_k) of experts.
    """

    resource: Resource
    unit: Unit
    count: float
    storage: str = ""
    scope: Scope = None


def row_unit(value: Value) -> Unit:
    """What counts the rows of a value."""
    return Unit.OUTPUT if value.rows is Rows.OUTPUTS else Unit.ROW


def whole(weight: Weight, value: Value) -> Term:
    """All of a weight, once in every step that has rows of `value`."""
    unit = Unit.OUTPUT_STEP if value.rows is Rows.OUTPUTS else Unit.STEP
    return Term(Resource.WEIGHT_BYTES, unit, weight.num_elements, weight.name)


def flops(value: Value, count: float) -> Term:
    """So many FLOPs for each row of `value`."""
    return Term(Resource.FLOPS, row_unit(value), count)
