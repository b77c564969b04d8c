"""What cost is made of: terms "coefficient x bits x unit". Owns resources and units; no rule, no figure."""

from dataclasses import dataclass
from enum import StrEnum

Scope = int | tuple[int, int] | None


class Resource(StrEnum):
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
    EXPERTS = "experts"  # expected number of distinct experts that the step's tokens choose


@dataclass(frozen=True, slots=True)
class Term:
    """`count` per `unit`; for bytes, `count` elements of the storage named `storage` ("kv", "activation", a weight).

    `scope` completes some units: the window of a context, (num_experts, top_k) of experts.
    """

    resource: Resource
    unit: Unit
    count: float
    storage: str = ""
    scope: Scope = None
