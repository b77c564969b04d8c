"""MemorySum: what running a model takes, term by term, on any hardware. Owns the sum and what fits; allocates nothing.

For this engine the terms are those of `native.footprint`, which the engine's own check uses (`llm.memory`); for other
engines they follow from the program: caches that hold a window's tokens where layers have one, the widest activations
of a step, and scores where attention writes them out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twostroke.roofline.planned_model import KV_BITS, PlannedModel

_F32 = 4
_FIXED_OVERHEAD = 48 * 2**20  # this engine: tokenizer, templates, Python objects; measured
_OVERHEAD_A_TOKEN = 600  # of the vocabulary; measured
# Libraries and a driver's context on a device of its own, about 0.3 to 0.6 GB as nvidia-smi shows it for an idle
# process; on the system's memory the program itself.
_OVERHEAD = {"nvidia": 450 * 2**20, "nvidia-datacenter": 550 * 2**20, "amd": 450 * 2**20, "amd-datacenter": 550 * 2**20}
_SMALL_OVERHEAD = 200 * 2**20
# Of Apple's unified memory the GPU may hold about two thirds to 32 GB and three quarters above: what Metal gives as
# recommendedMaxWorkingSetSize on these machines.
_METAL_SHARES = ((36 * 2**30, 2 / 3), (float("inf"), 3 / 4))
# Of a discrete card's memory, what its firmware and page tables leave: 15.7 GiB are shown of 16, 23.5 of 24.
_CARD_SHARE = 0.98
_MAX_BATCH = 1 << 16
_OUTPUT_ROWS = 512


@dataclass(frozen=True, slots=True)
class MemorySum:
    """Bytes by what they are for; names are those of `plan --json`.

    host_bytes   of the weights, what stays in the host's memory: llama.cpp keeps an untied embedding there
    """

    weight_bytes: float
    kv_bytes: float
    kv_bytes_per_token: float
    state_bytes: float
    activation_bytes: float
    overhead_bytes: float
    host_bytes: float
    capacity_bytes: float | None

    @property
    def total_bytes(self) -> float:
        """On the device."""
        parts = (self.weight_bytes, self.kv_bytes, self.state_bytes, self.activation_bytes, self.overhead_bytes)
        return sum(parts) - self.host_bytes

    @property
    def fits(self) -> bool | None:
        """None where the hardware's memory is not known."""
        return None if self.capacity_bytes is None else self.total_bytes <= self.capacity_bytes


@dataclass(frozen=True, slots=True)
class Room:
    """Where a model is to run: an engine on a kind of hardware with so much memory, and the rows of its steps."""

    engine: str
    kind: str
    memory_bytes: int | None
    chunk_tokens: int
    num_threads: int = 1

    @property
    def capacity_bytes(self) -> float | None:
        """What a process can have of it."""
        if self.memory_bytes is None:
            return None
        if self.kind == "apple":
            share = next(share for size, share in _METAL_SHARES if self.memory_bytes <= size)
            return self.memory_bytes * share
        return self.memory_bytes * (1.0 if self.kind == "cpu" else _CARD_SHARE)


def memory_sum(model: PlannedModel, room: Room, *, context: int, batch: int, kv: str) -> MemorySum:
    """The terms for `batch` requests of `context` tokens each."""
    own = room.engine == "twostroke"
    weights, scratch = model.weight_bytes, _scratch(model, room, context)
    per_token = token_bytes(model, kv)
    kept = kept_bytes(model, kv, context)
    if own and (found := _footprint(model, room, context, kv)) is not None:
        weights, scratch, per_token = found.weight_bytes, found.scratch_bytes, found.kv_bytes_per_token
        kept = float(per_token * (-(-context // 16) * 16))
    return MemorySum(
        weight_bytes=float(weights),
        kv_bytes=batch * kept,
        kv_bytes_per_token=float(per_token),
        state_bytes=batch * _state_bytes(model),
        activation_bytes=float(scratch),
        overhead_bytes=float(_overhead(model, room)),
        host_bytes=model.embedding_bytes if _embeds_on_host(model, room) else 0.0,
        capacity_bytes=room.capacity_bytes,
    )


def token_bytes(model: PlannedModel, kv: str) -> float:
    """Bytes that one more token takes in all caches while no window is full."""
    return sum(group.elements_per_token for group in model.program.cache_groups) * KV_BITS[kv] / 8


def kept_bytes(model: PlannedModel, kv: str, context: int) -> float:
    """Bytes of the caches of one request of `context` tokens; windowed layers hold no more than their window."""
    elements = sum(group.elements_per_token * group.tokens_kept(context) for group in model.program.cache_groups)
    return elements * KV_BITS[kv] / 8


def largest(fits: Callable[[int], bool | None], limit: int) -> int:
    """The largest number up to `limit` that fits, 0 for none."""
    if fits(limit):
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def max_context(model: PlannedModel, room: Room, *, batch: int, kv: str) -> int | None:
    """The longest context, up to the model's own, for which `batch` requests fit; None where memory is not known."""
    if room.capacity_bytes is None:
        return None
    limit = model.config.context_length
    return largest(lambda context: memory_sum(model, room, context=context, batch=batch, kv=kv).fits, limit)


def max_batch(model: PlannedModel, room: Room, *, context: int, kv: str) -> int | None:
    """The most requests of `context` tokens that fit together."""
    if room.capacity_bytes is None:
        return None
    return largest(lambda batch: memory_sum(model, room, context=context, batch=batch, kv=kv).fits, _MAX_BATCH)


def _embeds_on_host(model: PlannedModel, room: Room) -> bool:
    return room.engine in ("llama.cpp", "ollama") and room.kind != "cpu" and model.has_own_embedding


def _overhead(model: PlannedModel, room: Room) -> float:
    if room.engine == "twostroke":
        return _FIXED_OVERHEAD + _OVERHEAD_A_TOKEN * model.config.vocab_size
    return _OVERHEAD.get(room.kind, _SMALL_OVERHEAD)


def _state_bytes(model: PlannedModel) -> float:
    """Recurrent states of one request, in 32 bits."""
    return _F32 * model.state_elements


def _scratch(model: PlannedModel, room: Room, context: int) -> float:
    """The widest activations of a step, its logits, and scores of latent attention, which other engines write out."""
    rows, outputs = room.chunk_tokens, min(room.chunk_tokens, _OUTPUT_ROWS)
    scores = 2 * model.latent_heads * outputs * context
    return _F32 * (rows * model.arena_dims + outputs * model.config.vocab_size + scores)


def _footprint(model: PlannedModel, room: Room, context: int, kv: str) -> Any:
    """What this engine will allocate, where it has kernels for the model's types; None where it has none."""
    from twostroke.roofline.own_footprint import own_footprint

    return own_footprint(model, room, context, kv)
