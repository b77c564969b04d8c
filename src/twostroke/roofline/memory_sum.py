"""MemorySum: what running a model takes, term by term, on any hardware. Owns the sum and what fits; allocates nothing.

For this engine the terms are `own_memory`'s, with which it checks before it loads; for other engines they follow from
the program: caches that hold a window's tokens where layers have one, the widest activations of a step, logits, and
scores where attention writes them out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twostroke.errors import UnsupportedModelError
from twostroke.roofline.planned_model import KV_BITS, PlannedModel
from twostroke.weights.tensor_types import TensorType

if TYPE_CHECKING:
    from twostroke.roofline.own_memory import OwnTerms
    from twostroke.weights.source import TensorInfo

_F32, _STATE_BYTES = 4, 4
# A type for each number of bits: sizes are all that is asked of it.
_TYPES = {kind.bits_per_weight: kind for kind in reversed(TensorType)}
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
    own = own_sum(model, room, context, kv) if room.engine == "twostroke" else None
    if own is not None:
        return MemorySum(
            weight_bytes=float(own.weight_bytes),
            kv_bytes=float(own.pool_bytes(batch * context)),
            kv_bytes_per_token=float(own.kv_bytes_per_token),
            state_bytes=0.0,
            activation_bytes=float(own.activation_bytes),
            overhead_bytes=float(own.overhead_bytes),
            host_bytes=0.0,
            capacity_bytes=room.capacity_bytes,
        )
    return MemorySum(
        weight_bytes=model.weight_bytes,
        kv_bytes=batch * kept_bytes(model, kv, context),
        kv_bytes_per_token=token_bytes(model, kv),
        state_bytes=batch * _STATE_BYTES * model.state_elements,
        activation_bytes=_scratch(model, room, context),
        overhead_bytes=float(_OVERHEAD.get(room.kind, _SMALL_OVERHEAD)),
        host_bytes=model.table_bytes if _embeds_on_host(room) else 0.0,
        capacity_bytes=room.capacity_bytes,
    )


def own_sum(model: PlannedModel, room: Room, context: int, kv: str) -> "OwnTerms | None":
    """What this engine would allocate; None where it lacks the model's ops or the types."""
    from twostroke.native.executor import KV_BITS as EXECUTOR_KV_BITS
    from twostroke.roofline.own_memory import own_terms  # with the compiled core, which only plans of this engine ask

    if kv not in EXECUTOR_KV_BITS or any(bits not in _TYPES for bits in model.bits.values()):
        return None
    try:
        return own_terms(
            model.program,
            _PlannedTensors(model),
            num_threads=room.num_threads,
            max_context=context,
            max_step_tokens=room.chunk_tokens,
            kv=kv,
        )
    except UnsupportedModelError:
        return None


@dataclass(frozen=True)
class _PlannedTensors:
    """Names, shapes and types of a planned model's weights."""

    model: PlannedModel

    def info(self, name: str) -> "TensorInfo":
        """A tensor that lies nowhere."""
        from twostroke.weights.source import TensorInfo

        weight = self.model.program.weights[name]
        kind = _TYPES[self.model.bits[name]]
        return TensorInfo(name, weight.shape, kind, 0, kind.row_bytes(weight.num_elements))


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


def _embeds_on_host(room: Room) -> bool:
    return room.engine in ("llama.cpp", "ollama") and room.kind != "cpu"


def _scratch(model: PlannedModel, room: Room, context: int) -> float:
    """The widest activations of a step, its logits, and scores of latent attention and of encoders, which other engines
    write out. An encoder takes a request whole."""
    if model.is_encoder:
        rows = max(context, min(room.chunk_tokens, _OUTPUT_ROWS))
        return _F32 * (rows * model.arena_dims + model.encoder_heads * context * context)
    rows, outputs = room.chunk_tokens, min(room.chunk_tokens, _OUTPUT_ROWS)
    scores = 2 * model.latent_heads * outputs * context
    return _F32 * (rows * model.arena_dims + outputs * model.config.vocab_size + scores)
