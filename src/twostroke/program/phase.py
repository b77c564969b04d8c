"""The two phases of inference. A phase is stated with every chunk of work, never inferred from its length."""

from enum import StrEnum


class Phase(StrEnum):
    """PREFILL: rows of a prompt. DECODE: generated rows, recomputed and speculated ones included."""

    PREFILL = "prefill"
    DECODE = "decode"
